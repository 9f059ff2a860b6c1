// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/fabric/peer_process.hpp"

#include <sstream>
#include <stdexcept>

#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro::testing {

PeerProcess::PeerProcess(const std::string& provider, std::size_t bytes)
    : ChildProcess({TRANSFER_PEER, provider, std::to_string(bytes)}) {
  std::istringstream line(read_line());
  if (!(line >> target_)) throw std::runtime_error("transfer_peer did not introduce itself");
}

PeerProcess::~PeerProcess() {
  if (pid() > 0) end();
  (void)sweep_shared_memory();  // the sweep has a separate test
}

}  // namespace maestro::testing
