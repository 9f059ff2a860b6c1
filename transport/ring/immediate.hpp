// SPDX-License-Identifier: Apache-2.0
// The 32 bits that travel with every RMA write: ring (10 bits), slot (6 bits), sequence modulo 65536 (16 bits).
//
// A ring whose slots also have a payload in device memory has a second number. A write with the second number is the
// header of a complete piece in that payload. It carries the piece's index instead of the sequence, which follows from
// the slot inside the window.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::uint32_t max_immediate_edges = 1u << 10;
inline constexpr std::uint32_t max_immediate_slots = 1u << 6;
inline constexpr std::uint32_t max_immediate_pieces = 1u << 16;

/// An address inside the receiving process. If a process hosts several consumer replicas of an edge, each of their
/// rings has a distinct `edge` number, since the 32 bits do not hold the replica.
struct Immediate {
  EdgeId edge;
  std::uint32_t slot = 0;
  std::uint16_t sequence = 0;  ///< sequence modulo 65536
  friend constexpr bool operator==(const Immediate&, const Immediate&) = default;
};

/// Checks at start-up whether a job's numbers fit the bits.
[[nodiscard]] inline Status check_immediate_limits(std::uint64_t edges, std::uint64_t slots) {
  if (edges > max_immediate_edges) {
    return Error{ErrorCode::invalid_argument, std::to_string(edges) + " rings meet in one process; at most " +
                                                  std::to_string(max_immediate_edges) +
                                                  " fit: spread the replicas over more processes"};
  }
  if (slots == 0 || slots > max_immediate_slots) {
    return Error{ErrorCode::invalid_argument, "transport.slots = " + std::to_string(slots) + " must lie in 1.." +
                                                  std::to_string(max_immediate_slots)};
  }
  return {};
}

[[nodiscard]] constexpr std::uint16_t wrap_sequence(std::uint64_t seq) {
  return static_cast<std::uint16_t>(seq);
}

/// Returns the sequence nearest to `near` that wraps to `wrapped`: exact while the two are less than 32768 apart.
[[nodiscard]] constexpr std::uint64_t unwrap_sequence(std::uint16_t wrapped, std::uint64_t near) {
  const auto ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(wrapped - wrap_sequence(near)));
  if (ahead < 0 && near < static_cast<std::uint64_t>(-std::int64_t{ahead})) {
    return near + (std::uint64_t{1} << 16) + static_cast<std::uint64_t>(std::int64_t{ahead});
  }
  return near + static_cast<std::uint64_t>(std::int64_t{ahead});
}

/// Packs an immediate; edge and slot must be below the limits above.
[[nodiscard]] constexpr std::uint32_t pack(const Immediate& immediate) {
  assert(immediate.edge.value() < max_immediate_edges && immediate.slot < max_immediate_slots);
  return (immediate.edge.value() & (max_immediate_edges - 1)) << 22 |
         (immediate.slot & (max_immediate_slots - 1)) << 16 | immediate.sequence;
}

[[nodiscard]] constexpr Immediate unpack_immediate(std::uint32_t bits) {
  return {EdgeId(bits >> 22), (bits >> 16) & (max_immediate_slots - 1), static_cast<std::uint16_t>(bits)};
}

}  // namespace maestro
