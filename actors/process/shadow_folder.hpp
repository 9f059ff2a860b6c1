// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the memory of a host, which outlive every process of the run but rank 0: after the loss of another the
// run goes on from the last of them. They are files of /dev/shm.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint_store.hpp"
#include "runtime/core/input_file.hpp"

namespace maestro {

/// Owns a folder of /dev/shm, named after this process, so that a sweep of shared memory removes it if this process is
/// killed.
class ShadowFolder {
 public:
  /// `model_files`: CheckpointStoreOptions::model_files.
  explicit ShadowFolder(std::filesystem::path model_files);
  ~ShadowFolder();
  ShadowFolder(const ShadowFolder&) = delete;
  ShadowFolder& operator=(const ShadowFolder&) = delete;

  [[nodiscard]] const CheckpointStore& store() const { return store_; }
  /// Returns an error where two checkpoints of `bytes` do not fit.
  [[nodiscard]] Status room_for(std::uint64_t bytes) const;

 private:
  CheckpointStore store_;
  FileDescriptor held_;  // hold_shared_memory()
};

}  // namespace maestro
