// SPDX-License-Identifier: Apache-2.0
// Numbers a piece's arrow in a trace. Sender and receiver, also in different processes, compute it from the plan.
//
// FN-1 (unique numbers): within a run the numbers of pieces differ while edges < 2^10, replicas < 2^12, ranks < 2^6,
//       and pieces of a micro-batch < 2^12.
#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"
#include "runtime/graph/channel.hpp"

namespace maestro {

struct PieceKey {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;      ///< receiving rank
  std::uint64_t sequence = 0;  ///< sequence of the receiver's ring; its low 23 bits count
  std::uint32_t index = 0;     ///< index of the piece in its micro-batch
};

[[nodiscard]] constexpr std::uint64_t piece_flow(const PieceKey& key) {
  std::uint64_t number = key.channel.edge.value() & 0x3ff;
  number = number << 1 | (key.channel.gradient() ? 1 : 0);
  number = number << 12 | (key.receiver.value() & 0xfff);
  number = number << 6 | (key.layout_rank.value() & 0x3f);
  number = number << 12 | (key.index & 0xfff);
  return number << 23 | (key.sequence & 0x7fffff);
}

}  // namespace maestro
