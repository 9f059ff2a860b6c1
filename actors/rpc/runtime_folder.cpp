// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/runtime_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the folder's name. After su or in a container the variable may name a missing folder.
fs::path folder_name() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code problem;
  if (runtime != nullptr && fs::is_directory(runtime, problem)) return fs::path(runtime) / "maestro";
  return "/tmp/maestro-" + std::to_string(geteuid());
}

}  // namespace

fs::path runtime_folder() {
  const fs::path folder = folder_name();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw JobError(system_error("cannot make", folder, errno));
  struct stat there {};
  if (::lstat(folder.c_str(), &there) != 0) throw JobError(system_error("cannot examine", folder, errno));
  if (there.st_uid != ::geteuid()) {
    throw JobError(folder.string() + " belongs to another user (uid " + std::to_string(there.st_uid) +
                       "), who made it before this one; remove it, or set XDG_RUNTIME_DIR to a folder of this user",
                   ErrorCode::unavailable);
  }
  if (!S_ISDIR(there.st_mode) || (there.st_mode & 077) != 0) {
    throw JobError(folder.string() + " must be a folder that only this user may enter (mode 0700)",
                   ErrorCode::unavailable);
  }
  return folder;
}

}  // namespace maestro
