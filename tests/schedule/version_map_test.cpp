// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/version_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

/// A parameter of `rows` rows and `columns` columns, cut over tensor ranks.
enum class Sliced { none, rows, columns };
struct Whole {
  std::string name;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  Sliced cut = Sliced::none;
  std::int64_t stage = 0;
};

WeightPart held_by(const Whole& whole, std::int64_t rank, std::int64_t tensor) {
  WeightPart part{whole.name, whole.rows, whole.columns, {{0, whole.rows}}, {0, whole.columns}};
  if (whole.cut == Sliced::columns) part.held_columns = row_part(whole.columns, tensor, rank);
  if (whole.cut != Sliced::rows) return part;
  part.held_rows.clear();  // two runs, as of a fused matrix
  const std::int64_t half = whole.rows / 2;
  for (const RowRange& part_of : {RowRange{0, half}, RowRange{half, whole.rows - half}}) {
    RowRange own = row_part(part_of.count, tensor, rank);
    own.first += part_of.first;
    part.held_rows.push_back(own);
  }
  return part;
}

std::vector<WeightBlock> blocks_of(const std::vector<Whole>& wholes, std::int64_t stages, std::int64_t tensor,
                                   std::int64_t replicas) {
  std::vector<WeightBlock> blocks;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    for (std::int64_t rank = 0; rank < tensor; ++rank) {
      WeightBlock block{
          SectionId(static_cast<std::uint32_t>(stage)), LayoutRank(static_cast<std::uint32_t>(rank)), replicas, {}};
      for (const Whole& whole : wholes) {
        if (whole.stage % stages == stage && (rank == 0 || whole.cut != Sliced::none)) {
          block.parts.push_back(held_by(whole, rank, tensor));
        }
      }
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

TEST(VersionMap, every_element_of_every_parameter_has_one_place_in_a_version_under_every_layout) {  // WG-1, WG-2
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<Whole> wholes;
    std::map<std::string, std::int64_t> expected;
    std::int64_t all = 0;
    for (std::uint64_t at = 0, count = 1 + random.below(6); at < count; ++at) {
      const auto rows = static_cast<std::int64_t>(4 + random.below(20)),
                 columns = static_cast<std::int64_t>(4 + random.below(9));
      wholes.push_back({"w" + std::to_string(at), rows, columns, static_cast<Sliced>(random.below(3)),
                        static_cast<std::int64_t>(random.below(6))});
      expected[wholes.back().name] = rows * columns;
      all += rows * columns;
    }
    const auto stages = static_cast<std::int64_t>(1 + random.below(3)),
               tensor = static_cast<std::int64_t>(1 + random.below(4)),
               replicas = static_cast<std::int64_t>(1 + random.below(3));
    const VersionMap map(blocks_of(wholes, stages, tensor, replicas));
    map.require(expected);
    EXPECT_EQ(map.elements(), all);
    EXPECT_EQ(map.parameters(), expected);
    std::vector<int> in_version(static_cast<std::size_t>(all));
    for (const Whole& whole : wholes) {
      std::vector<int> in_parameter(static_cast<std::size_t>(whole.rows * whole.columns));
      map.for_each_run(whole.name, [&](const WeightRun& run) {
        for (std::int64_t at = 0; at < run.count; ++at) {
          ++in_version.at(static_cast<std::size_t>(run.in_version + at));
          ++in_parameter.at(static_cast<std::size_t>(run.in_parameter + at));
        }
      });
      EXPECT_EQ(std::ranges::count(in_parameter, 1), std::ssize(in_parameter)) << whole.name;
    }
    EXPECT_EQ(std::ranges::count(in_version, 1), all);
    std::int64_t sent = 0;
    for (const WeightPiece& piece : map.pieces()) {
      EXPECT_EQ(piece.target, sent);
      EXPECT_GT(piece.own.count, 0);
      sent += piece.own.count;
    }
    EXPECT_EQ(sent, all);
    EXPECT_LE(std::ssize(map.pieces()), most_weight_pieces(stages, tensor, replicas));
  }
}

TEST(VersionMap, does_not_depend_on_the_order_of_addresses) {  // WG-3
  const std::vector<Whole> wholes{
      {"a", 8, 4, Sliced::rows, 0}, {"b", 6, 4, Sliced::columns, 1}, {"c", 5, 1, Sliced::none, 1}};
  std::vector<WeightBlock> blocks = blocks_of(wholes, 2, 2, 2);
  const VersionMap map(blocks);
  std::ranges::reverse(blocks);
  const VersionMap reversed(blocks);
  ASSERT_EQ(map.pieces().size(), reversed.pieces().size());
  for (std::size_t at = 0; at < map.pieces().size(); ++at) {
    EXPECT_EQ(map.pieces()[at].section, reversed.pieces()[at].section);
    EXPECT_EQ(map.pieces()[at].rank, reversed.pieces()[at].rank);
    EXPECT_EQ(map.pieces()[at].replica, reversed.pieces()[at].replica);
    EXPECT_EQ(map.pieces()[at].own, reversed.pieces()[at].own);
  }
}

TEST(VersionMap, names_the_parameter_that_the_ranks_do_not_hold_once) {
  const auto problem_of = [](const std::vector<WeightBlock>& blocks,
                             const std::map<std::string, std::int64_t>& expected) {
    try {
      VersionMap(blocks).require(expected);
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<Whole> wholes{{"a", 8, 4, Sliced::rows, 0}, {"b", 6, 4, Sliced::columns, 0}};
  std::vector<WeightBlock> blocks = blocks_of(wholes, 1, 2, 1);
  EXPECT_EQ(problem_of(blocks, {{"a", 32}, {"b", 24}}), "");
  EXPECT_NE(problem_of(blocks, {{"a", 32}, {"b", 24}, {"c", 1}}).find("'c' hold 0 values"), std::string::npos);
  EXPECT_NE(problem_of(blocks, {{"a", 32}}).find("lacks 'b'"), std::string::npos);
  blocks[1].parts.pop_back();
  EXPECT_NE(problem_of(blocks, {{"a", 32}, {"b", 24}}).find("'b' hold 12 values"), std::string::npos);
  blocks[1].parts.push_back(blocks[0].parts[1]);
  EXPECT_NE(problem_of(blocks, {{"a", 32}, {"b", 24}}).find("two ranks hold the same values of 'b'"),
            std::string::npos);
}

}  // namespace
}  // namespace maestro
