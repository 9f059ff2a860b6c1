// SPDX-License-Identifier: Apache-2.0
// Packs the 64 bits that connect the end of a write or copy with the work that began it: client (16 bits), kind (3
// bits), number (45 bits). Pure.
//
// WC-1 (unique cookies): a process' cookies differ while its clients are below `max_cookie_clients` and each client's
//       numbers of a kind count up from 0 and stay below `max_cookie_numbers`.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>

#include "actors/messages/memory_addresses.hpp"

namespace maestro {

inline constexpr std::uint32_t max_cookie_clients = 1u << 16;
inline constexpr std::uint64_t max_cookie_numbers = std::uint64_t{1} << 45;

struct WriteCookie {
  std::uint32_t client = 0;               ///< Network::next_client(): a replica's rank in this process
  std::optional<ReductionKind> exchange;  ///< the exchange that writes; empty: the rank's ports
  std::uint64_t number = 0;
  friend constexpr bool operator==(const WriteCookie&, const WriteCookie&) = default;
};

/// Packs a cookie. The client and the number must be below the limits above.
[[nodiscard]] constexpr std::uint64_t pack_cookie(const WriteCookie& cookie) {
  static_assert(reduction_kinds < 8);
  assert(cookie.client < max_cookie_clients && cookie.number < max_cookie_numbers);
  const std::uint64_t kind = cookie.exchange ? static_cast<std::uint64_t>(*cookie.exchange) + 1 : 0;
  return std::uint64_t{cookie.client} << 48 | kind << 45 | cookie.number;
}

[[nodiscard]] constexpr WriteCookie unpack_cookie(std::uint64_t bits) {
  WriteCookie cookie{static_cast<std::uint32_t>(bits >> 48), std::nullopt, bits & (max_cookie_numbers - 1)};
  const std::uint64_t kind = bits >> 45 & 7;
  if (kind != 0) cookie.exchange = static_cast<ReductionKind>(kind - 1);
  return cookie;
}

}  // namespace maestro
