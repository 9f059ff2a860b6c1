// SPDX-License-Identifier: Apache-2.0
// Which rows go from which rank of the sending section to which rank of the receiving section on one edge, when the two
// cut the samples of a step into micro-batches of their own and spread each over ranks of their own. Pure. For a
// gradient the consumer is the sender and the producer the receiver.
//
// RP-1: the pieces of a receiving rank are in row order and cover every row that it holds once. Two neighbours never
//       come from one rank with rows that follow each other there: they would be one piece.
// RP-2: a rank gets rows that it holds, and no others; so the rows moved are the least_rows.
// RP-3: where several sending ranks hold a row, a receiving rank gets it from one of them, and receiving ranks go round
//       them: rank r from tensor index r modulo the sender's tensor degree; with Sharding::replicated from rank r
//       modulo the sender's ranks. So between equal layouts what rank r could have from rank r comes from there.
// RP-4: of tensors cut by vocabulary, tensor index t receives from tensor index t.
// RP-5: pieces depend on samples, micro-batches, layouts and spreads alone, not on replicas or processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/port.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// What the ranks at one end of an edge hold.
struct ReshardEnd {
  Layout layout;
  Sharding spread = Sharding::context_rows;
};

struct ReshardRequest {
  Axis axis = Axis::tokens;
  ReshardEnd sender;
  ReshardEnd receiver;  ///< Sharding::vocabulary under tensor > 1: at both ends, with equal tensor degrees
  /// Micro-batches by their samples, in row order. SampleRef::place tells samples apart. Each receiving sample with
  /// rows on the axis is in one sending micro-batch; senders may have more. The spans must outlive make() and
  /// least_rows().
  std::vector<std::span<const SampleRef>> senders;
  std::vector<std::span<const SampleRef>> receivers;
};

struct ReshardPiece {
  std::uint32_t sender = 0;  ///< index of the sending micro-batch
  std::uint32_t sender_rank = 0;
  std::int64_t source_row = 0;  ///< within what the sending rank holds of it
  std::int64_t target_row = 0;  ///< within what the receiving rank holds
  std::int64_t rows = 0;        ///< at least 1
  friend bool operator==(const ReshardPiece&, const ReshardPiece&) = default;
};

/// Rows of the tensors that ranks hold; under Sharding::vocabulary each is as wide as the rank's columns.
struct ReshardTraffic {
  std::int64_t moved = 0;      ///< over all receiving ranks
  std::int64_t same_rank = 0;  ///< of these, between ranks of one number: on one device where sections share devices
};

/// Immutable.
class ReshardPlan {
 public:
  /// O(samples + pieces + receiving micro-batches x receiving ranks x log(samples of a micro-batch)) time.
  [[nodiscard]] static ReshardPlan make(const ReshardRequest& request);

  /// By index of the receiving micro-batch and rank in the receiving layout. Empty: the rank holds no row.
  [[nodiscard]] std::span<const ReshardPiece> pieces(std::size_t receiver, std::int64_t rank) const;
  [[nodiscard]] ReshardTraffic traffic() const;

 private:
  class Maker;
  ReshardPlan() = default;
  std::size_t ranks_ = 1;             // of the receiving layout
  std::vector<ReshardPiece> pieces_;  // by receiving micro-batch, then rank
  std::vector<std::size_t> ends_;     // in pieces_, by micro-batch * ranks_ + rank
};

/// What no plan can do without: every receiving rank gets each row that it holds once.
[[nodiscard]] std::int64_t least_rows(const ReshardRequest& request);

/// Pieces of one sequence at one receiving rank at most. `samples`: of a receiving micro-batch at most; `most_rows`: of
/// one sample on the edge's axis. At least 1.
[[nodiscard]] std::int64_t max_pieces_of(const ReshardEnd& sender, std::int64_t samples, std::int64_t most_rows);
/// Pieces that one rank of the sender sends of one micro-batch over one edge at most. `samples`: of a sending
/// micro-batch at most. At least 1.
[[nodiscard]] std::int64_t max_pieces_from(const ReshardEnd& receiver, std::int64_t samples);

}  // namespace maestro
