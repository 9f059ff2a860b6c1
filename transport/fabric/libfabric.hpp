// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at its first use: psm2 and infinipath, which Debian's build needs, measure the processor's clock
// for 200 ms when they are loaded. The functions that the headers of libfabric only declare are defined here.
#pragma once

#include "runtime/core/result.hpp"

namespace maestro {

/// Sets the variables of the environment by which infinipath and psm2, when they are loaded, leave handlers of signals
/// as they are. The first load does, too; a program with several threads calls this before they read the environment.
void keep_signal_handlers();

/// Loads the library, unless that was done. Handlers of signals stay as they are, also at the set-up of its providers
/// by the first fi_getinfo(). Error `unavailable`, with the loader's reason. Thread-safe.
[[nodiscard]] Status load_libfabric();

}  // namespace maestro
