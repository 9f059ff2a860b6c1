// No schedule of a workload can be shorter than this.
#pragma once

#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// Milliseconds: the largest of
///  - the work of a section over its lanes (and of a device, where lanes share it), plus the shortest head before its
///    first pass and the shortest tail after its last one,
///  - the longest path of one sample, forward and back,
///  - the preemptive Schrage (Jackson) value of heads, bodies and tails on a section of one lane (Carlier 1982),
///  - the in-flight bound sum(f + b + 2x + downstream chain) / (K M) of a section of M lanes with limit K,
///  - for two stages, a weighted completion-time bound (Eastman, Even and Isaacs 1964).
/// O(n log n) in tasks.
double lower_bound_ms(const Workload& workload);

}  // namespace maestro
