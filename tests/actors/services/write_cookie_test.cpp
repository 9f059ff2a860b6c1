// SPDX-License-Identifier: Apache-2.0
#include "actors/services/write_cookie.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace maestro {
namespace {

std::vector<WriteCookie> cookies_at_the_limits() {
  std::vector<WriteCookie> cookies;
  for (const std::uint32_t client : {0u, 1u, max_cookie_clients / 2, max_cookie_clients - 1}) {
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, max_cookie_numbers - 1}) {
      cookies.push_back({client, std::nullopt, number});
      for (std::uint32_t kind = 0; kind < reduction_kinds; ++kind) {
        cookies.push_back({client, static_cast<ReductionKind>(kind), number});
      }
    }
  }
  return cookies;
}

TEST(WriteCookie, every_part_survives_the_trip_at_its_limits) {  // WC-1
  for (const WriteCookie& cookie : cookies_at_the_limits()) EXPECT_EQ(unpack_cookie(pack_cookie(cookie)), cookie);
}

TEST(WriteCookie, cookies_that_differ_in_any_part_differ) {  // WC-1
  std::set<std::uint64_t> packed;
  for (const WriteCookie& cookie : cookies_at_the_limits()) packed.insert(pack_cookie(cookie));
  EXPECT_EQ(packed.size(), 4 * 3 * (1 + reduction_kinds));
}

TEST(WriteCookie, the_bits_lie_where_the_header_places_them) {
  EXPECT_EQ(pack_cookie({max_cookie_clients - 1, std::nullopt, 0}), 0xffff000000000000u);
  EXPECT_EQ(pack_cookie({0, ReductionKind::replicas, 0}), 0x0000200000000000u);
  EXPECT_EQ(pack_cookie({0, ReductionKind::tie, 0}), 0x0000400000000000u);
  EXPECT_EQ(pack_cookie({0, ReductionKind::moments, 0}), 0x0000600000000000u);
  EXPECT_EQ(pack_cookie({0, ReductionKind::rows, 0}), 0x0000800000000000u);
  EXPECT_EQ(pack_cookie({0, std::nullopt, max_cookie_numbers - 1}), 0x00001fffffffffffu);
}

}  // namespace
}  // namespace maestro
