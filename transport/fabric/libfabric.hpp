// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at its first use: psm2 and infinipath, which Debian's needs, measure the processor's clock for 0.2
// s when they are loaded, and take signals. The functions that its headers only declare are defined here.
#pragma once

#include "runtime/core/result.hpp"

namespace maestro {

/// Loads the library, unless that was done. Handlers of signals stay as they are. Error `unavailable`, with the
/// loader's reason. Thread-safe.
[[nodiscard]] Status load_libfabric();

}  // namespace maestro
