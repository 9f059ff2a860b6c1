// SPDX-License-Identifier: Apache-2.0
// Names the segments of libfabric's shm provider in /dev/shm, and removes the segments of killed processes; a folder of
// checkpoints that has such a name counts as a segment.
//
// libfabric 1.17 names segments by process number alone: a process that gets the number of a killed process then finds
// "its" segment taken and cannot open its endpoint, and so does a process of another container that shares /dev/shm.
// These names identify a segment's process for good: maestro-<pid namespace>-<pid>-<start time>-<n> (the provider adds
// ":<user>:<endpoint>", and "_<message>" for large messages if it cannot attach to the other process's memory).
#pragma once

#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// A name that no endpoint had before. Thread-safe.
std::string new_shared_memory_name();

/// Removes this user's segments whose process, of this process's pid namespace, is dead; returns their names, sorted. A
/// process that merely reuses the number of a dead process does not keep its segments. Thread-safe. Errors,
/// `unavailable`: the folder cannot be read or a segment cannot be removed; all removable segments are gone then.
Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder = "/dev/shm");

/// Removes the segments of this process itself, when it leaves without closing its endpoints; nothing may use them
/// afterwards.
Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder = "/dev/shm");

}  // namespace maestro
