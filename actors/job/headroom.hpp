// SPDX-License-Identifier: Apache-2.0
// Checks that this process may still start threads and open files. Libraries below (CAF, libfabric) hang or end the
// process at such a limit; this check reports it in a line before they start.
#pragma once

#include <cstddef>

namespace maestro {

struct Headroom {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  bool allocating = false;  ///< the threads also allocate: the first block of each reserves 64 MiB of address space
};

/// Starts and ends that many threads, and opens and closes that many descriptors, all at once. Throws JobError,
/// `unavailable`, with the limit that was reached.
void require_headroom(const Headroom& wanted);

}  // namespace maestro
