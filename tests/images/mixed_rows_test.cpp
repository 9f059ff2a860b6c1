// SPDX-License-Identifier: Apache-2.0
// Decoder rows of fitted images. image_text_reference_test.cpp compares them with transformers.
#include "runtime/images/mixed_rows.hpp"

#include <gtest/gtest.h>

#include <set>

#include "runtime/images/image_processor.hpp"

namespace maestro {
namespace {

ImageProcessor fitted(std::int64_t most_tiles) {
  ImageSettings settings;
  settings.geometry = FittedTiles{8, {{8, 8}, {16, 8}, {8, 16}, {16, 16}, {24, 8}}};
  EncoderGrid encoder;
  encoder.patch = 2;
  encoder.most_tiles = most_tiles;
  return {settings, encoder};
}

TEST(MixedRows, are_as_many_as_the_plan_states_and_weigh_one) {
  for (const std::int64_t most : {1, 2, 9}) {
    const ImageProcessor processor = fitted(most);
    for (const ImageSize size : {ImageSize{1, 1}, {9, 20}, {20, 9}, {15, 13}, {300, 100}, {64, 64}, {7, 90}}) {
      for (const std::int64_t images : {1, 2}) {
        SCOPED_TRACE(std::to_string(size.width) + " x " + std::to_string(size.height));
        const ImagePlan plan = processor.plan(size, images).value_or_throw();
        const std::vector<MixedRow> rows = mixed_rows(plan, {4, 4});
        ASSERT_EQ(std::ssize(rows), plan.visual_rows);
        std::int64_t newlines = 0;
        for (const MixedRow& row : rows) {
          float sum = 0;
          for (std::size_t term = 0; term < mixed_terms; ++term) {
            sum += row.weights[term];
            ASSERT_GE(row.weights[term], 0);
            if (row.weights[term] > 0) {
              ASSERT_GE(row.sources[term], newline_row);
              ASSERT_LT(row.sources[term], plan.encoder_rows);
            }
          }
          ASSERT_NEAR(sum, 1, 1e-6);
          if (row.sources[0] == newline_row) ++newlines;
        }
        EXPECT_EQ(newlines, images > 1 ? 1 : plan.merged.rows);
      }
    }
  }
}

TEST(MixedRows, of_an_image_that_fills_its_canvas_are_all_rows_of_its_tiles_line_by_line) {
  const ImageProcessor processor = fitted(9);
  const ImagePlan plan = processor.plan({16, 8}).value_or_throw();
  const std::vector<MixedRow> rows = mixed_rows(plan, {4, 4});
  std::set<std::int32_t> sources;
  for (const MixedRow& row : rows) sources.insert(row.sources[0]);
  EXPECT_EQ(std::ssize(sources), 1 + plan.encoder_rows) << "and the newline";
  // After the first tile's 16 rows: four rows of the second tile, then four of the third, then the newline.
  EXPECT_EQ(rows[16].sources[0], 16);
  EXPECT_EQ(rows[20].sources[0], 32);
  EXPECT_EQ(rows[24].sources[0], newline_row);
  EXPECT_EQ(rows[25].sources[0], 20);
}

TEST(MixedRows, count_from_the_images_first_row_in_its_sample) {
  const ImageProcessor processor = fitted(9);
  const ImagePlan plan = processor.plan({8, 8}, 2).value_or_throw();
  std::vector<std::int32_t> sources(17 * mixed_terms);
  std::vector<float> weights(sources.size());
  processor.mix(plan, 100, sources, weights);
  EXPECT_EQ(sources[4], 101);
  EXPECT_EQ(sources[16 * 4], newline_row);
  EXPECT_EQ(weights[16 * 4], 1);
  EXPECT_TRUE(processor.mixes());
  sources.pop_back();
  EXPECT_THROW(processor.mix(plan, 0, sources, weights), std::invalid_argument);
}

}  // namespace
}  // namespace maestro
