// SPDX-License-Identifier: Apache-2.0
// Checks that this process may still start threads and open files. At such a limit CAF and libfabric hang or end the
// process; this check reports the limit in a line before they start.
#pragma once

#include <cstddef>

namespace maestro {

struct Headroom {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  bool allocating = false;  ///< threads also allocate: each one's first block reserves 64 MiB of address space
};

/// Opens that many descriptors at once and closes them, then starts that many threads at once and ends them. Throws
/// JobError, `unavailable`, with the limit that was reached.
void require_headroom(const Headroom& wanted);

}  // namespace maestro
