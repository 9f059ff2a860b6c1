// SPDX-License-Identifier: Apache-2.0
// Converts join requests to and from their wire form (rendezvous.thrift), and text of peers to part of a line.
#pragma once

#include <string>
#include <string_view>

#include "actors/launch/join_check.hpp"

namespace maestro {

namespace rendezvous {
class Joining;
}

/// Returns the first 2,000 bytes of a peer's text as part of a line: UTF-8 without control characters.
[[nodiscard]] std::string peer_text(std::string_view text);

[[nodiscard]] rendezvous::Joining wire_form(const JoinRequest& request);
/// Returns the request that a peer has sent. Host and version are printable.
[[nodiscard]] JoinRequest request_of(const rendezvous::Joining& joining);

}  // namespace maestro
