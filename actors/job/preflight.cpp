// SPDX-License-Identifier: Apache-2.0
#include "actors/job/preflight.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"
#include "transport/fabric/libfabric.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

class Socket {
 public:
  Socket() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Returns why a folder cannot be written or created; empty: it can.
std::string obstacle(const fs::path& folder) {
  std::error_code problem;
  fs::path at = fs::absolute(folder).lexically_normal();
  while (!fs::exists(at, problem) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, problem)) return at.string() + " is not a folder";
  if (access(at.c_str(), W_OK | X_OK) != 0) return at.string() + ": " + std::strerror(errno);
  return {};
}

}  // namespace

void check_writable_folder(const fs::path& folder, const std::string& what) {
  const std::string found = obstacle(folder);
  if (found.empty()) return;
  throw JobError(what + ": cannot write to \"" + folder.string() + "\" (" + found + "); choose another folder",
                 ErrorCode::unavailable);
}

void check_writable_file(const fs::path& file, const std::string& what) {
  const Result<WriteTarget> target = find_write_target(file);
  std::string found;
  if (!target) {
    std::error_code problem;
    found = fs::is_directory(file, problem) ? "it is a folder" : target.error().message;
  } else if (!target->through) {
    found = obstacle(fs::absolute(target->path).parent_path());
  } else if (target->descriptor < 0 && access(target->path.c_str(), W_OK) != 0) {
    found = std::strerror(errno);
  }
  if (found.empty()) return;
  throw JobError(what + ": cannot write \"" + file.string() + "\" (" + found + "); choose another file",
                 ErrorCode::unavailable);
}

void check_port_free(const TransportConfig& transport) {
  if (transport.port == 0) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(transport.port));
  if (inet_pton(AF_INET, transport.listen.c_str(), &address.sin_addr) != 1) return;  // a name: listening resolves it
  const Socket probe;
  const int on = 1;  // a port whose last connections linger is free for a listener
  (void)setsockopt(probe.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(probe.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
  throw JobError("transport.port = " + std::to_string(transport.port) + ": cannot listen there on " + transport.listen +
                     " (" + std::strerror(errno) + "); use another port, or 0 for any free one",
                 ErrorCode::unavailable);
}

void check_provider(const TransportConfig& transport, SharedMemoryUse shared_memory) {
  const ProviderChoice choice{transport.provider, provider_override(), reach_of(transport.listen), shared_memory_room(),
                              shared_memory};
  load_libfabric().or_throw();
  (void)choose_provider(choice, offered_providers()).value_or_throw();
}

}  // namespace maestro
