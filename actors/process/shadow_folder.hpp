// SPDX-License-Identifier: Apache-2.0
// Checkpoints in host memory, as files in /dev/shm. They outlive every process of the run except rank 0: after the loss
// of another process the run continues from the last one.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint_store.hpp"
#include "runtime/core/input_file.hpp"

namespace maestro {

/// Owns a folder in /dev/shm that is named after this process, so that a sweep of shared memory removes it if this
/// process is killed.
class ShadowFolder {
 public:
  /// `model_files`: CheckpointStoreOptions::model_files.
  explicit ShadowFolder(std::filesystem::path model_files);
  ~ShadowFolder();
  ShadowFolder(const ShadowFolder&) = delete;
  ShadowFolder& operator=(const ShadowFolder&) = delete;

  [[nodiscard]] const CheckpointStore& store() const { return store_; }
  /// Returns an error if two checkpoints of `bytes` do not fit.
  [[nodiscard]] Status room_for(std::uint64_t bytes) const;

 private:
  CheckpointStore store_;
  FileDescriptor held_;  // hold_shared_memory()
};

}  // namespace maestro
