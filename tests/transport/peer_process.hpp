// A transfer_peer process as an object: started in the constructor, ended in the destructor.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

#include "tests/transport/transfer_wire.hpp"

namespace maestro::testing {

class PeerProcess {
 public:
  /// Throws std::runtime_error when the process does not start or does not introduce itself.
  PeerProcess(const std::string& provider, std::size_t bytes);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const WireTarget& target() const { return target_; }
  void send(const std::string& command);
  /// The next line it prints; empty when it has ended.
  [[nodiscard]] std::string read_line();
  /// SIGKILL; returns when the process is gone.
  void kill_now();
  /// Closes its standard input and waits for it. The exit status, or -1 when a signal ended it.
  int end();

 private:
  [[nodiscard]] int wait_for_exit();

  pid_t pid_ = -1;  // -1 once it has ended
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
  WireTarget target_;
};

}  // namespace maestro::testing
