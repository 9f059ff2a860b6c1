// SPDX-License-Identifier: Apache-2.0
// Names the segments of libfabric's shm provider in /dev/shm, and removes those that killed processes left there.
//
// libfabric 1.17 names them by process number alone: a process that gets the number of a killed one then finds "its"
// segment taken and cannot open its endpoint, and so does one of another container that shares /dev/shm. These names
// say whose a segment is, for good:  maestro-<pid namespace>-<pid>-<start time>-<n>  (the provider adds
// ":<user>:<endpoint>", and "_<message>" for large messages where it cannot attach to the other process's memory).
#pragma once

#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// A name that no endpoint had before. Thread-safe.
std::string new_shared_memory_name();

/// Removes this user's segments whose process, one of this process's pid namespace, is dead; returns their names,
/// sorted. A process that only has the number of a dead one does not keep its segments. Thread-safe. Errors,
/// `unavailable`: the folder cannot be read or a segment cannot be removed; what could be removed is.
Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder = "/dev/shm");

/// Removes the segments of this process itself, when it leaves without closing its endpoints; nothing may use them
/// afterwards.
Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder = "/dev/shm");

}  // namespace maestro
