// SPDX-License-Identifier: Apache-2.0
// Names the segments of libfabric's shm provider in /dev/shm, and removes the segments of killed processes; a folder of
// checkpoints that has such a name counts as a segment.
//
// libfabric 1.17 names segments by process number alone: a process that gets the number of a killed process then finds
// "its" segment taken and cannot open its endpoint, and so does a process of another container that shares /dev/shm.
// These names identify a segment's process for good: maestro-<pid namespace>-<pid>-<start time>-<n> (the provider adds
// ":<user>:<endpoint>", and "_<message>" for large messages if it cannot attach to the other process's memory).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// A name that no endpoint had before. Thread-safe.
std::string new_shared_memory_name();

/// Locks a segment or a folder of this process until it ends or the descriptor closes: processes of other pid
/// namespaces see by the lock that it is in use. Empty if there is no such file.
[[nodiscard]] FileDescriptor hold_shared_memory(const std::filesystem::path& segment);

/// Removes this user's segments whose process is dead; returns their names, sorted. A process that merely reuses the
/// number of a dead process does not keep its segments. Those of another pid namespace go if nobody holds their lock
/// and they are a minute old, as a process locks its segment right after it has made it. Thread-safe. Errors,
/// `unavailable`: the folder cannot be read or a segment cannot be removed; all removable segments are gone then.
Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder = "/dev/shm");

/// Removes the segments of this process itself, when it leaves without closing its endpoints; nothing may use them
/// afterwards.
Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder = "/dev/shm");

}  // namespace maestro
