// SPDX-License-Identifier: Apache-2.0
// Direct copies between the devices of a process.
//
// PE-1: two devices reach each other's memory from when both were opened here, where the system has a way for it; a
//       device that this process does not use is left alone, since to reach it takes memory there.
// PE-2: where there is none, copies between them go through the host, by the driver: slower, not wrong.
#pragma once

#include <mutex>
#include <set>

namespace maestro::cuda {

/// Thread-safe.
class PeerAccess {
 public:
  /// Device `index` is in use from now on.
  void opened(int index);

 private:
  std::mutex mutex_;
  std::set<int> devices_;
};

}  // namespace maestro::cuda
