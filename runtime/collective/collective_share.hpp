// SPDX-License-Identifier: Apache-2.0
// The part of a collective within a process that each rank performs once all ranks have published their sides. Pure but
// for the memory that the calls name.
//
// GS-1 (disjoint shares): the shares of all ranks are the whole collective and may run at once: no share writes memory
//       that another reads or writes.
// GS-2 (one adder): each sum is formed by a single rank, 0 + 1 + 2 + ... in f32 (CM-1).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/collective/collective_call.hpp"

namespace maestro {

/// Performs the share of `rank`. `calls`, one per rank, are without call_violation() for any rank.
///   all_reduce_*         combines its shard_range() of the values and writes it to every rank
///   all_gather_rows      copies every part to its own whole
///   reduce_scatter_rows  adds its own rows of every whole
///   reduce_to_shards     adds its own shard of all values, in place
///   gather_shards        copies every other shard to its own values
///   exchange             copies the blocks it receives from where its peers have them
void perform_share(std::span<const CollectiveCall> calls, std::int64_t rank);

}  // namespace maestro
