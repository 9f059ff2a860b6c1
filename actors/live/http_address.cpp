// SPDX-License-Identifier: Apache-2.0
#include "actors/live/http_address.hpp"

#include <algorithm>
#include <cctype>

#include "runtime/core/result.hpp"

namespace maestro {

SocketAddress parse_http_address(const std::string& text) {
  const bool port_only = !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
  std::string full = text;
  if (port_only) full = "127.0.0.1:" + text;
  if (text.starts_with(':')) full = "127.0.0.1" + text;
  try {
    SocketAddress address = parse_socket_address(full);
    if (address.local()) throw JobError("\"" + text + "\" is a local socket; give HOST:PORT, or PORT for 127.0.0.1");
    return address;
  } catch (const JobError& problem) {
    throw JobError(std::string("--http: ") + problem.what(), problem.code());
  }
}

void check_http_address(const std::string& text, bool has_keys) {
  if (text.empty()) return;
  SocketAddress wanted = parse_http_address(text);
  if (!on_this_host_only(wanted) && !has_keys) {
    throw JobError("--http " + wanted.text() +
                   ": other hosts reach it, so it needs --keys, and its clients must send the token" +
                   " (see `maestro keys`)");
  }
  try {
    const FileDescriptor listener = listen_at(wanted);
  } catch (const JobError& problem) {
    throw JobError(std::string("--http: ") + problem.what(), problem.code());
  }
}

bool names_this_host(const std::string& host_header) {
  if (host_header.empty() || host_header.starts_with("[::1]")) return true;
  SocketAddress named;
  named.host = host_header.substr(0, host_header.rfind(':'));
  std::ranges::transform(named.host, named.host.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return on_this_host_only(named);
}

}  // namespace maestro
