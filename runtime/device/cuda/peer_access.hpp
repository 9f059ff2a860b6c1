// SPDX-License-Identifier: Apache-2.0
// Direct copies between the devices of a process.
//
// PE-1 (mutual access): two devices reach each other's memory once both were opened here, if the system has a path for
//       it; a device that this process does not use is not opened, since access to it takes memory there.
// Without such a path, the driver copies between them through the host: slower, not wrong.
#pragma once

#include <mutex>
#include <set>

namespace maestro::cuda {

/// Thread-safe.
class PeerAccess {
 public:
  /// Records that device `index` is in use from now on.
  void opened(int index);

 private:
  std::mutex mutex_;
  std::set<int> devices_;
};

}  // namespace maestro::cuda
