// SPDX-License-Identifier: Apache-2.0
// Addresses of the live page as users write them. Errors are JobErrors with a single line.
#pragma once

#include <string>

#include "actors/rpc/socket_address.hpp"

namespace maestro {

/// Parses "HOST:PORT"; the host of ":PORT" and "PORT" is 127.0.0.1.
[[nodiscard]] SocketAddress parse_http_address(const std::string& text);

/// Throws JobError if a page cannot be served at `text` now; an empty text is valid. `has_keys`: the run has a token.
void check_http_address(const std::string& text, bool has_keys);

/// Returns whether a request with this Host header may be for a page that only this host reaches. Refuses another
/// site's name that was made to point here. An absent header is empty.
[[nodiscard]] bool names_this_host(const std::string& host_header);

}  // namespace maestro
