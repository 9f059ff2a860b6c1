// SPDX-License-Identifier: Apache-2.0
// A transfer_peer process as an object.
#pragma once

#include <string>

#include "tests/support/child_process.hpp"
#include "tests/transport/fabric/transfer_wire.hpp"

namespace maestro::testing {

class PeerProcess : public ChildProcess {
 public:
  /// Throws std::runtime_error if the process does not start or does not introduce itself.
  PeerProcess(const std::string& provider, std::size_t bytes);
  ~PeerProcess();

  [[nodiscard]] const WireTarget& target() const { return target_; }

 private:
  WireTarget target_;
};

}  // namespace maestro::testing
