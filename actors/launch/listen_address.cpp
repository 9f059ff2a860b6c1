// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/listen_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime/core/result.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

namespace {

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

bool is_ipv4(const std::string& text) {
  in_addr parsed{};
  return inet_pton(AF_INET, text.c_str(), &parsed) == 1;
}

bool is_loopback(const std::string& address) {
  return reach_of(address) == Reach::same_host;
}

std::string listed(const std::vector<InterfaceAddress>& here) {
  std::string text;
  for (const InterfaceAddress& each : here) {
    text += (text.empty() ? "" : ", ") + each.address + " (" + each.interface + ")";
  }
  return text.empty() ? "none" : text;
}

sockaddr_in resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    throw JobError("host \"" + host + "\" does not resolve: " + gai_strerror(code) +
                       "; check the name and the resolver of this machine",
                   ErrorCode::not_found);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  return address;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  std::vector<InterfaceAddress> found;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, each->ifa_addr, sizeof address);
    found.push_back({each->ifa_name, text_of(address.sin_addr), (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

std::string address_of(const std::string& host) {
  return text_of(resolve(host).sin_addr);
}

std::string address_towards(const std::string& host) {
  sockaddr_in peer = resolve(host);
  peer.sin_port = htons(9);  // any port: connecting a datagram socket only looks up the route
  const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  const bool routed = probe >= 0 && connect(probe, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0 &&
                      getsockname(probe, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  const int problem = errno;
  if (probe >= 0) close(probe);
  if (routed) return text_of(own.sin_addr);
  throw JobError("there is no route from this machine to host \"" + host + "\" (" + text_of(peer.sin_addr) +
                     "): " + std::strerror(problem),
                 ErrorCode::unavailable);
}

std::string choose_listen_address(const std::string& wanted, const std::string& towards,
                                  const std::vector<InterfaceAddress>& here) {
  if (wanted == "auto") {
    if (!is_loopback(towards)) return towards;
    // On rank 0's host its name often resolves to 127.0.1.1.
    const auto outward = std::ranges::find(here, false, &InterfaceAddress::loopback);
    if (outward != here.end()) return outward->address;
    throw JobError(
        "transport.listen = \"auto\": other hosts cannot reach any address of this machine; it has " + listed(here),
        ErrorCode::unavailable);
  }
  const auto by_interface = std::ranges::find(here, wanted, &InterfaceAddress::interface);
  if (by_interface != here.end()) return by_interface->address;
  const bool known = std::ranges::find(here, wanted, &InterfaceAddress::address) != here.end();
  if (known || is_loopback(wanted)) return wanted;
  throw JobError("transport.listen = \"" + wanted + "\" is " +
                     (is_ipv4(wanted) ? "not an address of this machine" : "neither an address nor an interface here") +
                     "; it has " + listed(here) + "; or use \"auto\"",
                 ErrorCode::unavailable);
}

std::string host_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr && *node != '\0') return node;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "this host";
  return name;
}

}  // namespace maestro
