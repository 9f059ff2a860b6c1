// SPDX-License-Identifier: Apache-2.0
// A group of ranks that are threads of one process, over host memory: ranks read their peers' arguments in place. A
// waiting rank sleeps; if every device thread can have a separate core, it polls a few hundred times first.
//
// TG-1 (all or none): a collective is performed by all ranks or by none; ranks meet twice, before the first read and
//       after the last, and copy nothing but results.
// TG-2 (mismatch): calls of different ranks that do not fit together (operation, lengths, rows, columns, dtype, blocks)
//       touch no tensor: every rank throws std::logic_error with the same text, which names operation, rank and both
//       values, and the group is aborted.
// TG-3 (late abort): if abort() comes after all ranks have entered a call, the call throws as well (CM-2), but not
//       before every rank has done its share: no rank's memory is read after its call has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collective/communicator.hpp"

namespace maestro {

/// Returns the communicators of a new group, by rank. Each may be moved to its rank's thread and destroyed in any
/// order; together they hold the shared state. `device_threads`: all computing threads of the process, over all groups,
/// to decide whether waiting ranks poll; 0: only the ranks of this group. all_reduce_max keeps a NaN of any rank.
/// Throws std::invalid_argument if `ranks` < 1.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_group(std::int64_t ranks,
                                                                           std::int64_t device_threads = 0);

}  // namespace maestro
