// SPDX-License-Identifier: Apache-2.0
// A folder that appears under its name when it is complete.
#pragma once

#include <filesystem>

namespace maestro {

/// A folder next to its target, which commit() renames to the target and the destructor removes otherwise.
class PartialFolder {
 public:
  /// Throws JobError: the target exists and is not empty, or the folder cannot be made.
  explicit PartialFolder(std::filesystem::path target);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return partial_; }
  /// Renames the folder to its target. Throws JobError.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path partial_;
};

}  // namespace maestro
