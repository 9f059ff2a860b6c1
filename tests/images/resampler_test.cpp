// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/resampler.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/images/made_image.hpp"

namespace maestro {
namespace {

TEST(Resampler, gives_the_bytes_of_pillow_for_each_filter_and_order) {
  const std::map<std::string, ResampleFilter> filters{{"nearest", ResampleFilter::nearest},
                                                      {"lanczos", ResampleFilter::lanczos},
                                                      {"bilinear", ResampleFilter::bilinear},
                                                      {"bicubic", ResampleFilter::bicubic}};
  const auto lines = reference_lines("resize");
  ASSERT_EQ(lines.size(), 400u);
  for (const auto& line : lines) {
    const PassOrder order = line[1] == "pillow13" ? PassOrder::pillow13 : PassOrder::horizontal;
    const Image image = made_image({std::stoll(line[2]), std::stoll(line[3])});
    const ImageSize to{std::stoll(line[4]), std::stoll(line[5])};
    const Image resized = Resampler(filters.at(line[0]), order).resize(image, to);
    EXPECT_EQ(crc_of(resized), line[6]) << line[0] << ", " << line[1] << ": " << line[2] << " x " << line[3] << " to "
                                        << line[4] << " x " << line[5];
  }
}

TEST(Resampler, the_order_of_passes_changes_pixels_only_if_the_height_shrinks_far_more) {
  const Image image = made_image({61, 120});
  const auto resized = [&](PassOrder order, ImageSize to) {
    return Resampler(ResampleFilter::bicubic, order).resize(image, to).pixels;
  };
  EXPECT_NE(resized(PassOrder::pillow13, {50, 90}), resized(PassOrder::horizontal, {50, 90}));
  EXPECT_EQ(resized(PassOrder::pillow13, {41, 80}), resized(PassOrder::horizontal, {41, 80}));
}

TEST(Resampler, an_equal_size_gives_the_same_pixels) {
  const Image image = made_image({9, 6});
  EXPECT_EQ(Resampler(ResampleFilter::lanczos).resize(image, {9, 6}).pixels, image.pixels);
}

}  // namespace
}  // namespace maestro
