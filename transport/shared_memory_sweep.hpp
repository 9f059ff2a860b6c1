// Removes what killed processes leave in /dev/shm: libfabric 1.17's shm provider names its segments "<pid>:<n>:<n>".
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Removes the segments of the given processes and returns their names, sorted. A process that is alive keeps its
/// segments, be it the one meant or another that has got its number since. Give only pids of one's own job.
/// Thread-safe. Errors, `unavailable`: the folder cannot be read or a segment cannot be removed; what could be removed
/// is.
Result<std::vector<std::string>> sweep_shared_memory(std::span<const pid_t> dead,
                                                     const std::string& folder = "/dev/shm");

/// The same for this process itself, when it leaves without closing its endpoints; nothing may use them afterwards.
Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder = "/dev/shm");

}  // namespace maestro
