// SPDX-License-Identifier: Apache-2.0
// Memory of other processes' devices that this one has opened.
//
// OM-1: all of it is let go of before this process tells that it has done its part of the run, and no process leaves
//       before all have told: what is open belongs to a process that is there.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro {

/// Thread-safe.
class ImportedMemories {
 public:
  /// Owns `memory` until close_all(). Copies under way hold it longer: until their end.
  std::weak_ptr<ImportedMemory> keep(std::unique_ptr<ImportedMemory> memory) {
    const std::lock_guard lock(mutex_);
    return kept_.emplace_back(std::move(memory));
  }
  void close_all() {
    std::vector<std::shared_ptr<ImportedMemory>> ended;
    const std::lock_guard lock(mutex_);
    ended.swap(kept_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<ImportedMemory>> kept_;  // shared with copies under way
};

}  // namespace maestro
