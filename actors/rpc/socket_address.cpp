// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/socket_address.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

namespace maestro {
namespace {

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

sockaddr_un local_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    throw JobError("unix:" + text + ": the path of a local socket has at most " +
                   std::to_string(sizeof address.sun_path - 1) + " bytes, this one " + std::to_string(text.size()));
  }
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

sockaddr_in internet_address(const SocketAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    throw JobError(
        address.text() + ": the host name \"" + address.host + "\" cannot be resolved (" + gai_strerror(failed) + ")",
        ErrorCode::not_found);
  }
  sockaddr_in result{};
  std::memcpy(&result, found->ai_addr, sizeof result);
  freeaddrinfo(found);
  result.sin_port = htons(address.port);
  return result;
}

FileDescriptor new_socket(int family) {
  FileDescriptor made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) throw JobError("cannot make a socket: " + reason_of(errno), ErrorCode::unavailable);
  return made;
}

void make_non_blocking(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

template <class Address>
int bind_to(int socket, const Address& address) {
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

template <class Address>
int connect_once(int socket, const Address& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

/// Removes a socket without a listener; throws for anything else at this path.
void remove_stale(const sockaddr_un& address) {
  const std::string path = address.sun_path;
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    throw JobError("cannot listen at unix:" + path + ": the path exists and is not a socket");
  }
  const FileDescriptor probe = new_socket(AF_UNIX);
  make_non_blocking(probe.get());
  if (connect_once(probe.get(), address) != ECONNREFUSED) {
    throw JobError("cannot listen at unix:" + path + ": another process listens there", ErrorCode::unavailable);
  }
  ::unlink(path.c_str());
}

FileDescriptor listen_locally(const SocketAddress& address) {
  const sockaddr_un where = local_address(address.path);
  const std::filesystem::path folder = address.path.parent_path();
  if (!folder.empty() && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw JobError("cannot make the folder " + folder.string() + ": " + reason_of(errno), ErrorCode::unavailable);
  }
  FileDescriptor made = new_socket(AF_UNIX);
  ::fchmod(made.get(), 0600);  // before it has a name: other users cannot connect in between
  int failed = bind_to(made.get(), where);
  if (failed == EADDRINUSE) {
    remove_stale(where);
    failed = bind_to(made.get(), where);
  }
  if (failed != 0) {
    throw JobError("cannot listen at " + address.text() + ": " + reason_of(failed), ErrorCode::unavailable);
  }
  return made;
}

FileDescriptor listen_on_network(SocketAddress& address) {
  const sockaddr_in where = internet_address(address);
  FileDescriptor made = new_socket(AF_INET);
  const int on = 1;
  ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int failed = bind_to(made.get(), where);
  if (failed == EADDRINUSE) {
    throw JobError("cannot listen at " + address.text() + ": the port is busy; use another one, or 0 for any free port",
                   ErrorCode::unavailable);
  }
  if (failed == EADDRNOTAVAIL) {
    throw JobError("cannot listen at " + address.text() + ": it is not an address of this machine",
                   ErrorCode::unavailable);
  }
  if (failed != 0) {
    throw JobError("cannot listen at " + address.text() + ": " + reason_of(failed), ErrorCode::unavailable);
  }
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ::getsockname(made.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  address.port = ntohs(bound.sin_port);
  return made;
}

JobError connect_error(const SocketAddress& address, const std::string& service, int error) {
  const std::string start = "no " + service + " at " + address.text() + ": ";
  switch (error) {
    case ENOENT:
      return JobError(start + "there is no such socket", ErrorCode::not_found);
    case ECONNREFUSED:
      return JobError(start + "no process listens there", ErrorCode::unavailable);
    case ETIMEDOUT:
    case EINPROGRESS:  // Linux ends a connect that SO_SNDTIMEO bounds with this
    case EAGAIN:
      return JobError(start + "the connection timed out", ErrorCode::timeout);
    default:
      return JobError(start + reason_of(error), ErrorCode::unavailable);
  }
}

void bound_connect(int socket, std::chrono::milliseconds patience) {
  timeval limit{};
  limit.tv_sec = patience.count() / 1000;
  limit.tv_usec = patience.count() % 1000 * 1000;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace

std::string SocketAddress::text() const {
  return local() ? "unix:" + path.string() : host + ":" + std::to_string(port);
}

SocketAddress parse_socket_address(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return JobError("\"" + text + "\" is not an address: " + why + "; give HOST:PORT or unix:/PATH");
  };
  if (text.starts_with("unix:")) {
    const std::string path = text.substr(5);
    if (path.empty()) throw refuse("the path is missing");
    return {.path = path, .host = {}, .port = 0};
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw refuse("the port is missing");
  if (colon == 0) throw refuse("the host is missing");
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  if (read.ec != std::errc{} || read.ptr != end) throw refuse("the port must be a number from 0 to 65535");
  return {.path = {}, .host = text.substr(0, colon), .port = port};
}

bool on_this_host_only(const SocketAddress& address) {
  if (address.local() || address.host == "localhost") return true;
  in_addr number{};
  return ::inet_pton(AF_INET, address.host.c_str(), &number) == 1 && ntohl(number.s_addr) >> 24 == 127;
}

FileDescriptor listen_at(SocketAddress& address) {
  FileDescriptor made = address.local() ? listen_locally(address) : listen_on_network(address);
  if (::listen(made.get(), 128) != 0) {
    throw JobError("cannot listen at " + address.text() + ": " + reason_of(errno), ErrorCode::unavailable);
  }
  make_non_blocking(made.get());
  return made;
}

FileDescriptor connect_to(const SocketAddress& address, const std::string& service,
                          std::chrono::milliseconds patience) {
  FileDescriptor made = new_socket(address.local() ? AF_UNIX : AF_INET);
  bound_connect(made.get(), patience);
  const int failed = address.local() ? connect_once(made.get(), local_address(address.path))
                                     : connect_once(made.get(), internet_address(address));
  if (failed != 0) throw connect_error(address, service, failed);
  make_non_blocking(made.get());
  if (!address.local()) {
    const int on = 1;
    ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return made;
}

std::string peer_name(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "a disconnected peer";
  if (peer.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &peer, sizeof address);
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
  }
  ucred owner{};
  socklen_t owner_size = sizeof owner;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &owner_size);
  return "process " + std::to_string(owner.pid);
}

}  // namespace maestro
