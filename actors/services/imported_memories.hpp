// SPDX-License-Identifier: Apache-2.0
// Owns memory that this process has imported from other processes' devices.
//
// OM-1 (close before exit): imported memory is closed before this process reports that it has finished, and processes
//       exit only after all have reported: the exporting process outlives every import.
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
  /// Keeps `memory` until close_all(). Copies in progress hold it until they end.
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
  std::vector<std::shared_ptr<ImportedMemory>> kept_;  // shared with copies in progress
};

}  // namespace maestro
