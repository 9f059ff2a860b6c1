// SPDX-License-Identifier: Apache-2.0
// A folder that is removed at the object's end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

class ScratchFolder {
 public:
  /// Creates a new folder NAME-XXXXXX in `parent`. Throws JobError, which ends with `hint`, if that fails.
  ScratchFolder(const std::filesystem::path& parent, const std::string& name, const std::string& hint) {
    std::string pattern = (parent / (name + "-XXXXXX")).string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw JobError("cannot create a folder in " + printable(parent.string()) + "; " + hint);
    }
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace maestro
