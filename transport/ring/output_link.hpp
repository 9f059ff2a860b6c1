// SPDX-License-Identifier: Apache-2.0
// The sending end of an edge towards a receiver replica: the pieces that wait for a credit.
//
// OL-1 (order): pieces leave in the order of their sequences, and pieces of the same sequence in the order they were
//       queued, each only when its sequence is inside the credit window: a piece that was made early never precedes a
//       piece that is due.
// OL-2 (held buffers): a queued piece holds its buffer, so nothing is overwritten before it was sent.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "runtime/core/buffer.hpp"
#include "runtime/schedule/credit_ledger.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

struct OutgoingPiece {
  PieceOut piece;
  StepId step;
  Buffer buffer;
  std::size_t offset = 0;         ///< position of the first row, bytes into the buffer
  std::size_t header_offset = 0;  ///< position of the 64-byte header, bytes into the buffer
};

/// Not thread-safe; belongs to the sending replica's actor.
class OutputLink {
 public:
  /// `senders`: above 1 if some sequences of the ring have no piece from this sender. `released`: number of sequences
  /// that the receiver released before this link was made.
  OutputLink(Epoch epoch, std::uint32_t slots, std::int64_t senders, std::uint64_t released = 0)
      : ledger_(epoch, slots, released), senders_(senders) {}

  void queue(OutgoingPiece piece);
  /// Returns the next piece that may leave now, if any.
  [[nodiscard]] Result<std::optional<OutgoingPiece>> take();
  Status grant(Epoch epoch, std::uint64_t released);
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] const OutgoingPiece* next() const { return waiting_.empty() ? nullptr : &waiting_.front(); }

 private:
  CreditLedger ledger_;
  std::int64_t senders_;
  std::list<OutgoingPiece> waiting_;  // empty on most links: no memory then
};

}  // namespace maestro
