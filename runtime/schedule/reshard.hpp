// SPDX-License-Identifier: Apache-2.0
// Maps an edge's rows from the sending section's ranks to the receiving section's ranks. The two partition the samples
// of a step into different micro-batches and shard each micro-batch over different ranks. Pure. For a gradient the
// consumer is the sender and the producer the receiver.
// Pieces depend on samples, micro-batches, layouts and shardings, not on replicas or processes.
//
// RE-1 (each row once, in order): the pieces of a receiving rank are in row order and cover every row that it holds
//       once. Two neighbours never come from the same rank with rows that follow each other there: such rows form a
//       single piece.
// RE-2 (least traffic): a rank receives the rows that it holds, and no others; so the rows moved equal least_rows().
// RE-3 (senders in turn): if several sending ranks hold a row, a receiving rank gets it from a single sender, and
//       receiving ranks use the senders in turn: rank r receives from tensor index r modulo the sender's tensor degree;
//       with Sharding::replicated from rank r modulo the sender's ranks. So between equal layouts every row that rank r
//       holds on both sides stays on rank r.
// RE-4 (vocabulary shards): tensor index t of a tensor sharded by vocabulary receives from tensor index t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/port.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Layouts and sharding at one end of an edge.
struct ReshardEnd {
  Layout layout;  ///< layout of each micro-batch; with `contexts`, the widest
  Sharding sharding = Sharding::context_rows;
  std::vector<std::int64_t> contexts = {};  ///< context degree by micro-batch; empty: all have the layout's
  [[nodiscard]] Layout of(std::size_t batch) const {
    return contexts.empty() ? layout : Layout{layout.tensor, contexts[batch]};
  }
};

struct ReshardRequest {
  Axis axis = Axis::tokens;
  ReshardEnd sender;
  ReshardEnd receiver;  ///< Sharding::vocabulary under tensor > 1: at both ends, with equal tensor degrees
  /// Micro-batches by their samples, in row order. SampleRef::place identifies a sample. Each receiving sample with
  /// rows on the axis is in exactly one sending micro-batch; senders may have more. The spans must outlive make() and
  /// least_rows().
  std::vector<std::span<const SampleRef>> senders;
  std::vector<std::span<const SampleRef>> receivers;
  SourceSet sources = {};  ///< sources whose samples have rows
};

struct ReshardPiece {
  std::uint32_t sender = 0;  ///< index of the sending micro-batch
  std::uint32_t sender_rank = 0;
  std::int64_t source_row = 0;  ///< row within the sending rank's rows of it
  std::int64_t target_row = 0;  ///< row within the receiving rank's rows
  std::int64_t rows = 0;        ///< at least 1
  friend bool operator==(const ReshardPiece&, const ReshardPiece&) = default;
};

/// Rows of the tensors that ranks hold; under Sharding::vocabulary each is as wide as the rank's columns.
struct ReshardTraffic {
  std::int64_t moved = 0;  ///< over all receiving ranks
  std::int64_t same_rank =
      0;  ///< moved rows between ranks of the same number: on the same device if sections share devices
};

/// Immutable.
class ReshardPlan {
 public:
  /// Makes the plan. O(samples + pieces + receiving micro-batches x receiving ranks x log(samples of a micro-batch))
  /// time.
  [[nodiscard]] static ReshardPlan make(const ReshardRequest& request);

  /// Returns the pieces by index of the receiving micro-batch and rank in its layout. Empty: the rank holds no row.
  [[nodiscard]] std::span<const ReshardPiece> pieces(std::size_t receiver, std::int64_t rank) const;
  [[nodiscard]] ReshardTraffic traffic() const;

 private:
  class Maker;
  ReshardPlan() = default;
  std::size_t ranks_ = 1;             // number of ranks in the widest receiving layout
  std::vector<ReshardPiece> pieces_;  // by receiving micro-batch, then rank
  std::vector<std::size_t> ends_;     // in pieces_, by micro-batch * ranks_ + rank
};

/// Returns the rows that any plan must move: every receiving rank gets each row that it holds once.
[[nodiscard]] std::int64_t least_rows(const ReshardRequest& request);

/// Returns the most pieces of a sequence at a receiving rank, at least 1. `samples`: the most samples in a receiving
/// micro-batch; `most_rows`: the most rows of a sample on the edge's axis.
[[nodiscard]] std::int64_t max_pieces_of(const ReshardEnd& sender, std::int64_t samples, std::int64_t most_rows);
/// Returns the most pieces of a micro-batch that a sending rank sends over an edge, at least 1. `samples`: the most
/// samples in a sending micro-batch.
[[nodiscard]] std::int64_t max_pieces_from(const ReshardEnd& receiver, std::int64_t samples);

}  // namespace maestro
