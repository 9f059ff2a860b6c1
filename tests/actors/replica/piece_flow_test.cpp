// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/piece_flow.hpp"

#include <gtest/gtest.h>

#include <set>

namespace maestro {
namespace {

TEST(PieceFlow, pieces_that_differ_in_any_field_differ_in_their_number) {  // FN-1
  std::set<std::uint64_t> numbers;
  std::size_t pieces = 0;
  for (const std::uint32_t edge : {0u, 1u, (1u << 10) - 1}) {
    for (const Direction direction : directions) {
      for (const std::uint32_t receiver : {0u, 1u, (1u << 12) - 1}) {
        for (const std::uint32_t rank : {0u, 1u, (1u << 6) - 1}) {
          for (const std::uint32_t index : {0u, 1u, (1u << 12) - 1}) {
            for (const std::uint64_t sequence : {0u, 1u, (1u << 23) - 1}) {
              numbers.insert(
                  piece_flow({{EdgeId(edge), direction}, ReplicaIndex(receiver), LayoutRank(rank), sequence, index}));
              ++pieces;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(numbers.size(), pieces);
}

}  // namespace
}  // namespace maestro
