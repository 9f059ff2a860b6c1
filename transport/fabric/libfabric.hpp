// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at its first use: psm2 and infinipath, dependencies of Debian's build, measure the CPU's clock for
// 200 ms when they are loaded. The functions that libfabric's headers only declare are defined here.
#pragma once

#include <signal.h>

#include "runtime/core/result.hpp"

namespace maestro {

/// Sets the environment variables that make infinipath and psm2 leave signal handlers as they are. The first load sets
/// them, too; a program with several threads calls this before they read the environment.
void keep_signal_handlers();

/// Loads the library, unless it is loaded. Signal handlers stay as they are, also when the first fi_getinfo() sets up
/// its providers. Error `unavailable`, with the loader's reason. Thread-safe.
[[nodiscard]] Status load_libfabric();

/// Restores the former signal handlers when it ends; libfabric may set handlers while it lives. shm's handler, which
/// its first endpoint sets, would remove this process's segments at SIGINT and SIGTERM, although the process continues
/// until its next checkpoint: a process that joins meanwhile could not map them.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers();
  ~KeptSignalHandlers();
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  struct Kept {
    int signal;
    struct sigaction before;
  };
  Kept kept_[4] = {{SIGBUS, {}}, {SIGSEGV, {}}, {SIGTERM, {}}, {SIGINT, {}}};
};

}  // namespace maestro
