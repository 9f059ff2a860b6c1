// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace maestro {

/// Returns the cores that the calling thread may run on, in order, at least one: the process's cores, limited by
/// containers and task sets, unless the thread is pinned. Threads that it starts may run on the same cores.
[[nodiscard]] std::vector<int> usable_cores();

}  // namespace maestro
