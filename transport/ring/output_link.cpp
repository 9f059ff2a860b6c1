// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/output_link.hpp"

#include <algorithm>

namespace maestro {

void OutputLink::queue(OutgoingPiece piece) {
  auto behind = waiting_.end();  // nearly always its place
  while (behind != waiting_.begin() && std::prev(behind)->piece.sequence > piece.piece.sequence) --behind;
  waiting_.insert(behind, std::move(piece));
}

Result<std::optional<OutgoingPiece>> OutputLink::take() {
  if (waiting_.empty() || !ledger_.may_send(waiting_.front().piece.sequence)) {
    return std::optional<OutgoingPiece>();
  }
  if (Status sent = ledger_.sent(waiting_.front().piece.sequence); !sent) return sent.error();
  std::optional<OutgoingPiece> piece(std::move(waiting_.front()));
  waiting_.pop_front();
  return piece;
}

Status OutputLink::grant(Epoch epoch, std::uint64_t released) {
  if (epoch != ledger_.epoch()) return {};  // CL-3; below, the window would never reach it
  // Sequences that other replicas filled count as sent too; their grants come here as well. Sequences beyond this
  // window were sent after grants that have not arrived here yet.
  while (senders_ > 1 && ledger_.sent_end() < released) {
    if (Status sent = ledger_.sent(std::min(released - 1, ledger_.released() + ledger_.slots() - 1)); !sent)
      return sent;
    if (ledger_.sent_end() < released) {
      if (Status passed = ledger_.grant(epoch, ledger_.sent_end()); !passed) return passed;
    }
  }
  return ledger_.grant(epoch, released);
}

}  // namespace maestro
