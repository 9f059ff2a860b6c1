// SPDX-License-Identifier: Apache-2.0
// Addresses of the live page as users write them. Errors are JobErrors of a single line.
#pragma once

#include <string>

#include "actors/rpc/socket_address.hpp"

namespace maestro {

/// Reads "HOST:PORT", or ":PORT" or "PORT" of 127.0.0.1.
[[nodiscard]] SocketAddress parse_http_address(const std::string& text);

/// Throws JobError when no page can be served at `text` now; an empty text is valid. `has_keys`: the run has a token.
void check_http_address(const std::string& text, bool has_keys);

/// Whether a request with this Host header may be meant for a page that only this host reaches: a page of another site
/// whose name was made to point here gets nothing. An absent header is empty.
[[nodiscard]] bool names_this_host(const std::string& host_header);

}  // namespace maestro
