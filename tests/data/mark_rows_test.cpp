// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/mark_rows.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/data/corpus.hpp"

namespace maestro {
namespace {

constexpr MarkRule axes{.axes = true, .mask = ImageMask::causal};

std::vector<std::int32_t> marks_of(const MarkRule& rule, const MarkedSample& sample) {
  std::vector<std::int32_t> marks(sample.tokens.size() * mark_columns);
  write_marks(rule, sample, marks);
  return marks;
}

std::vector<std::int32_t> ends_of(const MarkRule& rule, const MarkedSample& sample) {
  const std::vector<std::int32_t> marks = marks_of(rule, sample);
  std::vector<std::int32_t> ends;
  for (std::size_t at = mark_columns - 1; at < marks.size(); at += mark_columns) ends.push_back(marks[at]);
  return ends;
}

TEST(MarkRows, positions_equal_those_of_transformers_in_random_layouts) {
  const nlohmann::json layouts =
      nlohmann::json::parse(std::ifstream(std::string(MAESTRO_SOURCE_DIR) + "/tests/data/references/marks.json"));
  ASSERT_EQ(layouts.size(), 500);
  for (const nlohmann::json& layout : layouts) {
    std::vector<std::int32_t> tokens;
    std::vector<ImageGrid> grids;
    for (const nlohmann::json& part : layout["parts"]) {
      if (part.is_array()) grids.push_back({part[0], part[1]});
      const std::size_t count = part.is_array() ? static_cast<std::size_t>(grids.back().rows * grids.back().columns)
                                                : part.get<std::size_t>();
      tokens.insert(tokens.end(), count, part.is_array() ? image_token : 7);
    }
    const std::vector<std::int32_t> marks = marks_of(axes, {.tokens = tokens, .images = grids});
    std::uint32_t hash = 0;
    for (std::size_t at = 0; at < marks.size(); ++at) {
      if (at % mark_columns != mark_columns - 1) hash = 31 * hash + static_cast<std::uint32_t>(marks[at]);
    }
    EXPECT_EQ(hash, layout["hash"].get<std::uint32_t>()) << layout;
    EXPECT_EQ(next_position(marks), layout["next"].get<std::int32_t>()) << layout;
  }
}

const std::vector<std::int32_t> mixed{5, -1, -1, -1, 6, 7, -1, -1, 8};

TEST(MarkRows, rows_of_an_image_see_their_run) {
  EXPECT_EQ(ends_of({.mask = ImageMask::images}, {.tokens = mixed, .prefix = 6}),
            (std::vector<std::int32_t>{1, 4, 4, 4, 5, 6, 8, 8, 9}));
  const std::vector<std::int32_t> at_the_end{5, -1, -1};
  EXPECT_EQ(ends_of({.mask = ImageMask::images}, {.tokens = at_the_end}), (std::vector<std::int32_t>{1, 3, 3}));
}

TEST(MarkRows, rows_of_a_prefix_see_each_other) {
  EXPECT_EQ(ends_of({.mask = ImageMask::prefix}, {.tokens = mixed, .prefix = 6}),
            (std::vector<std::int32_t>{6, 6, 6, 6, 6, 6, 7, 8, 9}));
}

TEST(MarkRows, a_plain_rule_states_the_marks_of_a_text) {
  EXPECT_TRUE(MarkRule().plain());
  EXPECT_FALSE(axes.plain());
  const std::vector<std::int32_t> tokens{5, -1, 6};
  EXPECT_EQ(marks_of({}, {.tokens = tokens, .prefix = 2}),
            (std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3}));
}

TEST(MarkRows, rows_that_do_not_fit_are_refused) {
  std::vector<std::int32_t> marks(mixed.size() * mark_columns);
  const std::vector<ImageGrid> grids{{1, 3}, {2, 1}}, crossing{{1, 4}, {1, 1}}, few{{1, 3}};
  write_marks(axes, {.tokens = mixed, .images = grids}, marks);
  EXPECT_THROW(write_marks(axes, {.tokens = mixed, .images = few}, marks), std::invalid_argument);
  EXPECT_THROW(write_marks(axes, {.tokens = mixed, .images = crossing}, marks), std::invalid_argument);
  EXPECT_THROW(write_marks(axes, {.tokens = mixed, .prefix = 10}, marks), std::invalid_argument);
  marks.pop_back();
  EXPECT_THROW(write_marks({}, {.tokens = mixed}, marks), std::invalid_argument);
}

}  // namespace
}  // namespace maestro
