// SPDX-License-Identifier: Apache-2.0
// A lower bound on the makespan of every schedule of a workload.
#pragma once

#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// Returns, in milliseconds, the largest of
///  - the longest path of a sample, forward and back;
///  - per section, and per group of sections that share devices: the work over the lanes, with the shortest heads
///    before and tails after it, in the lifted form that also counts entire samples per lane (parallel_bound.hpp);
///    first
///    and last passes of the lanes wait in turn for the lanes of a section before them;
///  - on a single lane or device, the preemptive Schrage (Jackson) value of heads, bodies and tails (Carlier 1982);
///  - on lanes of different speeds, that value on a single lane as fast as all of them together, and all else as if
///  each
///    were as fast as the fastest;
///  - the in-flight bound: a lane with limit K is K places that a task holds from its forward to its backward pass;
///  - for two sections in a row: Johnson's rule on work per lane, the idle time at both ends, and a weighted
///    completion-time bound (Eastman, Even and Isaacs 1964; stage_bound.hpp).
/// Slots are left out. Thread-safe; O(n log n) in tasks, for each pair of connected sections.
double lower_bound_ms(const Workload& workload);

}  // namespace maestro
