// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at its first use: psm2 and infinipath, which Debian's build needs, measure the processor's clock
// for 200 ms when they are loaded. The functions that the headers of libfabric only declare are defined here.
#pragma once

#include <signal.h>

#include "runtime/core/result.hpp"

namespace maestro {

/// Sets the variables of the environment by which infinipath and psm2, when they are loaded, leave handlers of signals
/// as they are. The first load does, too; a program with several threads calls this before they read the environment.
void keep_signal_handlers();

/// Loads the library, unless that was done. Handlers of signals stay as they are, also at the set-up of its providers
/// by the first fi_getinfo(). Error `unavailable`, with the loader's reason. Thread-safe.
[[nodiscard]] Status load_libfabric();

/// While it lives, libfabric may set handlers of signals; afterwards they are those of before. shm's handler, which its
/// first endpoint sets, would remove the segments of this process at SIGINT and SIGTERM, although the process goes on
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
