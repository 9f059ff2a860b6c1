// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at its first use: psm2 and infinipath, which Debian's build needs, measure the processor's clock
// for 200 ms when they are loaded, and set handlers of signals. The functions that the headers of libfabric only
// declare are defined here.
#pragma once

#include "runtime/core/result.hpp"

namespace maestro {

/// Loads the library, unless that was done. Handlers of signals stay as they are. Error `unavailable`, with the
/// loader's reason. Thread-safe.
[[nodiscard]] Status load_libfabric();

}  // namespace maestro
