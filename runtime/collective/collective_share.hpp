// SPDX-License-Identifier: Apache-2.0
// The part of a collective within a process that each rank performs after all ranks have published their sides. Pure,
// except for the memory that the calls name.
//
// GS-1 (disjoint shares): the shares of all ranks form the collective and may run at the same time: no share writes
//       memory that another reads or writes.
// GS-2 (one adder): each sum is formed by a single rank, 0 + 1 + 2 + ... in f32 (CM-1).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/collective/collective_call.hpp"

namespace maestro {

/// Performs the share of `rank`. `calls`, one per rank, are without call_violation() for any rank.
///   all_reduce_*         combines its shard_range() of the values and writes it to every rank
///   all_gather_rows      copies every part to its full tensor
///   reduce_scatter_rows  adds its rows over all full tensors
///   reduce_to_shards     adds its shard over all values, in place
///   gather_shards        copies every other shard to its values
///   exchange             copies the blocks it receives from its peers' tensors
void perform_share(std::span<const CollectiveCall> calls, std::int64_t rank);

}  // namespace maestro
