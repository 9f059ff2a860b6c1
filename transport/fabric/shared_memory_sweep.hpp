// SPDX-License-Identifier: Apache-2.0
// Names the segments of libfabric's shm provider in /dev/shm, and removes the segments of killed processes; a folder of
// checkpoints that has such a name counts as a segment.
//
// libfabric 1.17 names segments only by process number: a process that gets a killed process's number finds "its"
// segment taken and cannot open its endpoint, and so does a process of another container that shares /dev/shm. These
// names identify a segment's process permanently: maestro-<pid namespace>-<pid>-<start time>-<n> (the provider adds
// ":<user>:<endpoint>", and "_<message>" for large messages if it cannot attach to the other process's memory).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// Returns a name that no endpoint had before. Thread-safe.
std::string new_shared_memory_name();

/// Locks a segment or a folder of this process until the process ends or the descriptor closes: the lock shows
/// processes of other pid namespaces that it is in use. Empty if the file does not exist.
[[nodiscard]] FileDescriptor hold_shared_memory(const std::filesystem::path& segment);

/// Removes this user's segments whose process is dead; returns their names, sorted. A process that merely reuses a dead
/// process's number does not keep its segments. Segments of another pid namespace are removed if nobody holds their
/// lock and they are a minute old, as a process locks its segment right after it has made it. Thread-safe. Errors,
/// `unavailable`: the folder cannot be read or a segment cannot be removed; all removable segments are gone then.
Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder = "/dev/shm");

/// Removes this process's segments if it leaves without closing its endpoints; nothing may use them afterwards.
Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder = "/dev/shm");

}  // namespace maestro
