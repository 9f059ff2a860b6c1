// SPDX-License-Identifier: Apache-2.0
// Normal random numbers in bulk, for initial values: a few nanoseconds each, divided by the cores that the calling
// thread may run on.
#pragma once

#include <cstdint>
#include <span>

namespace maestro {

/// Fills `values` with normal numbers of mean 0 and the given deviation, up to 6.8 deviations from 0. Pair i of values,
/// [2 i, 2 i + 1], depends only on (seed, stream, i): draw i of Random(seed, stream), by Box and Muller (1958) with the
/// polynomials of Cephes `logf`, `sinf` and `cosf` (Moshier 1992). Bitwise equal on every CPU: f32 operations without
/// contraction, for any number of threads. Thread-safe.
void fill_normal(std::uint64_t seed, std::uint64_t stream, double deviation, std::span<float> values);

}  // namespace maestro
