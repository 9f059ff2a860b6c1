// SPDX-License-Identifier: Apache-2.0
// A group of ranks that are threads of one process, over host memory: ranks read their peers' arguments in place.
//
// TG-1: a collective is done by all ranks or by none; it meets twice, before anything is read and after, and copies
//       nothing but results.
// TG-2: calls of different ranks that do not fit together (operation, lengths, rows, columns, dtype, blocks) touch no
//       tensor: every rank throws std::logic_error with the same text, which names operation, rank and both values, and
//       the group is aborted.
// TG-3: a waiting rank sleeps; it looks a few hundred times first where every device thread can have a core of its own.
// TG-4: where abort() comes after all ranks have entered a call, the call throws as well (CM-2), but not before every
//       rank has done its share: nobody's memory is read after his call has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collective/communicator.hpp"

namespace maestro {

/// The communicators of a new group, by rank. Each may be moved to its rank's thread and ended in any order; together
/// they own what they share. `device_threads`: all threads of the process that compute, of every group, for TG-3;
/// 0: only the ranks of this one. all_reduce_max keeps a NaN of any rank. Throws std::invalid_argument for fewer than
/// one rank.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_group(std::int64_t ranks,
                                                                           std::int64_t device_threads = 0);

}  // namespace maestro
