// SPDX-License-Identifier: Apache-2.0
// The processor of models without a folder.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/images/image_processor.hpp"
#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

/// Returns the rows and columns of an image's patches.
ImageGrid grid_of(ImageSize size, const ScaledTile& tile) {
  const ImagePlan plan = scaled_processor(tile).plan(size).value_or_throw();
  EXPECT_EQ(plan.encoder_rows, plan.visual_rows);
  EXPECT_EQ(plan.tiles.size(), 1U);
  return plan.merged;
}

TEST(ScaledProcessor, every_size_gives_whole_patches_within_the_limits) {
  constexpr std::uint64_t seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t patch = 1 + static_cast<std::int64_t>(random() % 32);
    const ScaledTile settings{patch, static_cast<std::int64_t>(random() % 12) * patch,
                              patch + static_cast<std::int64_t>(random() % 1000)};
    const ImageSize size{1 + static_cast<std::int64_t>(random() % 2000),
                         1 + static_cast<std::int64_t>(random() % 2000)};
    SCOPED_TRACE(std::to_string(size.width) + " x " + std::to_string(size.height) + ", patch " + std::to_string(patch) +
                 ", image_size " + std::to_string(settings.image_size) + ", max " +
                 std::to_string(settings.max_image_size));
    const ImageGrid grid = grid_of(size, settings);
    ASSERT_GE(grid.rows, 1);
    ASSERT_GE(grid.columns, 1);
    const std::int64_t longer = std::max(grid.rows, grid.columns) * patch;
    if (settings.image_size > 0) {
      ASSERT_EQ(longer, settings.image_size);
    } else {
      ASSERT_LE(longer, settings.max_image_size);
    }
    // The aspect is off by at most half a patch on each side, unless a side was raised to a single patch or reduced to
    // the limit.
    const double wanted = settings.image_size > 0 ? static_cast<double>(settings.image_size)
                                                  : std::min(static_cast<double>(std::max(size.width, size.height)),
                                                             static_cast<double>(settings.max_image_size));
    const double scale = wanted / static_cast<double>(std::max(size.width, size.height));
    const double off = std::abs(static_cast<double>(grid.rows * patch) - static_cast<double>(size.height) * scale);
    ASSERT_LE(off, static_cast<double>(patch));
    ASSERT_EQ(grid_of({size.height, size.width}, settings), (ImageGrid{grid.columns, grid.rows})) << "turned";
  }
}

TEST(ScaledProcessor, known_sizes) {
  EXPECT_EQ(grid_of({72, 72}, {8, 64, 1024}), (ImageGrid{8, 8}));
  EXPECT_EQ(grid_of({640, 480}, {14, 336, 1024}), (ImageGrid{18, 24}));
  EXPECT_EQ(grid_of({1000, 3}, {8, 64, 1024}), (ImageGrid{1, 8}));
  EXPECT_EQ(grid_of({72, 52}, {8, 0, 1024}), (ImageGrid{7, 9}));
  EXPECT_EQ(grid_of({3, 3}, {8, 0, 1024}), (ImageGrid{1, 1}));
  EXPECT_EQ(grid_of({4096, 2048}, {8, 0, 100}), (ImageGrid{6, 12}));
}

TEST(ScaledProcessor, lays_out_channel_row_column_and_places) {
  const ImageProcessor processor = scaled_processor({2, 4, 1024});
  const Image image{4, 2, {0,  100, 200, 51, 101, 201, 102, 102, 202, 153, 103, 203,  //
                           10, 110, 210, 20, 120, 220, 30,  130, 230, 255, 140, 240}};
  const std::vector<Image> tiles = processor.tiles(image, processor.plan(image.size()).value_or_throw());
  std::vector<float> pixels(2 * 12);
  std::vector<std::int32_t> places(2 * 3);
  processor.rows(tiles, pixels, places);
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1}));
  const auto value = [](int byte) { return static_cast<float>(byte) / 127.5f - 1.0f; };
  const std::vector<int> first{0, 51, 10, 20, 100, 101, 110, 120, 200, 201, 210, 220};
  for (std::size_t at = 0; at < first.size(); ++at) EXPECT_EQ(pixels[at], value(first[at])) << at;
  EXPECT_EQ(pixels[12], value(102));
  EXPECT_EQ(pixels[15], 1.0f);
}

TEST(ScaledProcessor, its_fingerprint_covers_all_sizes) {
  const std::string plain = scaled_processor({8, 64, 1024}).fingerprint();
  EXPECT_NE(scaled_processor({16, 64, 1024}).fingerprint(), plain);
  EXPECT_NE(scaled_processor({8, 32, 1024}).fingerprint(), plain);
  EXPECT_NE(scaled_processor({8, 64, 512}).fingerprint(), plain);
  EXPECT_EQ(scaled_processor({8, 64, 1024}).fingerprint(), plain);
}

}  // namespace
}  // namespace maestro
