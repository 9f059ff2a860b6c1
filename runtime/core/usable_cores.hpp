// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace maestro {

/// Returns the cores that the calling thread may run on, in order, at least one: those of the process, as containers
/// and task sets limit it, unless the thread is pinned. Threads that it starts may run on the same.
[[nodiscard]] std::vector<int> usable_cores();

}  // namespace maestro
