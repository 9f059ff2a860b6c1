// SPDX-License-Identifier: Apache-2.0
// The vision encoder: packing, positions, limits, costs, storage. vision_reference_test.cpp compares it with SigLIP,
// vision_language_test.cpp its gradients with differences.
#include "sections/vision/vision_encoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sections/state_io.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

class VisionPositions : public ::testing::TestWithParam<PatchPositions> {
 protected:
  std::unique_ptr<VisionEncoder> encoder(bool trained = false, DType precision = DType::f32) {
    auto made = std::make_unique<VisionEncoder>(bench.context("vision", trained, precision),
                                                VisionEncoder::Options{tiny_vision(GetParam()), {}});
    randomise(*made, 3);
    return made;
  }
  std::vector<float> features(VisionEncoder& section, const Pictures& shown, DType precision = DType::f32) {
    const Batch batch = shown.batch();
    MicroBatch pass(bench, section, batch, Pass::evaluate, precision);
    shown.connect(pass);
    pass.forward();
    const Tensor& found = pass.output("features");
    std::vector<float> values(static_cast<std::size_t>(found.elements()));
    bench.ops->run(Cast{.from = found, .to = Tensor(values.data(), DType::f32, found.shape())});
    return values;
  }
  Bench bench;
  // A sample with two images, samples whose first image has the same number, and a single patch.
  Pictures pictures = Pictures::random(4, {{{3, 4}, {2, 2}}, {{1, 6}}, {{1, 1}}, {{4, 3}}}, 2);
};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST_P(VisionPositions, pictures_of_different_sizes_in_one_micro_batch_equal_them_one_by_one) {  // VE-1
  const auto section = encoder();
  const std::vector<float> together = features(*section, pictures);
  std::vector<float> apart;
  std::int32_t first = 0;
  for (const std::int32_t patches : {12, 4, 6, 1, 12}) {
    Pictures one = pictures.part(first, patches);
    for (std::size_t patch = 0; patch < one.places.size(); patch += 3) one.places[patch] = 0;
    const std::vector<float> alone = features(*section, one);
    apart.insert(apart.end(), alone.begin(), alone.end());
    first += patches;
  }
  expect_near(together, apart, 5e-6);  // products with another number of rows add up in another order
}

TEST_P(VisionPositions, a_patch_is_placed_by_its_row_and_column_wherever_it_stands_in_the_list) {  // VE-2
  const auto section = encoder();
  const Pictures one = Pictures::random(5, {{{3, 4}}}, 2);
  Pictures reversed = one;
  const auto count = static_cast<std::size_t>(one.rows()), wide = static_cast<std::size_t>(one.columns);
  for (std::size_t patch = 0; patch < count; ++patch) {
    const std::size_t from = count - 1 - patch;
    std::copy_n(one.pixels.begin() + static_cast<std::ptrdiff_t>(from * wide), wide,
                reversed.pixels.begin() + static_cast<std::ptrdiff_t>(patch * wide));
    std::copy_n(one.places.begin() + static_cast<std::ptrdiff_t>(from * 3), 3,
                reversed.places.begin() + static_cast<std::ptrdiff_t>(patch * 3));
  }
  const std::vector<float> forth = features(*section, one), back = features(*section, reversed);
  constexpr std::size_t width = 16;
  for (std::size_t patch = 0; patch < count; ++patch) {
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(back[patch * width + i], forth[(count - 1 - patch) * width + i], 5e-6) << patch;
    }
  }
}

TEST_P(VisionPositions, only_entries_of_patches_that_were_there_learn) {  // VE-2
  const auto section = encoder(true);
  const Pictures one = Pictures::random(5, {{{2, 3}}}, 2);
  const Batch batch = one.batch();
  MicroBatch pass(bench, *section, batch);
  one.connect(pass);
  pass.forward();
  std::vector<float> seed(6 * 16);
  for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<float>(i % 7) - 3;
  pass.seed("features", Tensor(seed.data(), DType::f32, {6, 16}));
  pass.backward();
  using Rows = std::vector<std::int64_t>;
  const auto learning = [&](const std::string& name) {
    const Tensor& gradient = section->parameters().find("vision_model.embeddings." + name)->gradient();
    Rows rows;
    for (std::int64_t row = 0; row < gradient.rows(); ++row) {
      const auto values = gradient.row_slice(row, 1).span<float>();
      if (std::any_of(values.begin(), values.end(), [](float value) { return value != 0; })) rows.push_back(row);
    }
    return rows;
  };
  if (GetParam() == PatchPositions::learned) {
    EXPECT_EQ(learning("position_embedding.weight"), (Rows{0, 1, 2, 3, 4, 5}));
  } else {
    EXPECT_EQ(learning("row_embedding.weight"), (Rows{0, 1}));
    EXPECT_EQ(learning("column_embedding.weight"), (Rows{0, 1, 2}));
  }
}

TEST_P(VisionPositions, layers_that_are_computed_again_give_the_same_bits_with_less_kept) {  // DK-1, DK-2
  const Batch batch = pictures.batch();
  std::map<std::int64_t, std::vector<float>> gradients;
  std::map<std::int64_t, std::size_t> kept;
  std::map<std::int64_t, Cost> costs;
  for (const std::int64_t group : {0, 1, 2}) {
    SectionContext context = bench.context("vision", true);
    context.recompute = group;
    VisionEncoder section(context, {tiny_vision(GetParam()), {}});
    randomise(section, 3);
    std::ranges::fill(section.parameters().gradients(), 0.0f);
    MicroBatch pass(bench, section, batch);
    pictures.connect(pass);
    pass.forward();
    kept[group] = bench.arena.used_bytes();
    std::vector<float> seed(static_cast<std::size_t>(pictures.rows() * 16));
    for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<float>(i % 7) - 3;
    pass.seed("features", Tensor(seed.data(), DType::f32, {pictures.rows(), 16}));
    pass.backward();
    gradients[group] = {section.parameters().gradients().begin(), section.parameters().gradients().end()};
    costs[group] = section.cost({.patches = pictures.rows(), .images = 5});
  }
  for (const std::int64_t group : {1, 2}) {
    EXPECT_EQ(gradients[group], gradients[0]) << group;
    EXPECT_GT(costs[group].recomputed, costs[group].flops / 2);
  }
  EXPECT_LT(kept[1], kept[0]);
  EXPECT_LT(costs[1].bytes, costs[0].bytes);
  EXPECT_EQ(costs[0].recomputed, 0);
}

TEST_P(VisionPositions, a_picture_beyond_the_tables_is_refused_with_its_sample_and_size) {
  const auto section = encoder();
  Pictures large = Pictures::random(5, {{{1, 1}}, {{1, 1}, {2, 7}}}, 2);
  const std::string fix = GetParam() == PatchPositions::learned
                              ? "more than max_patches = 12; raise it to 14, or shrink images by data.image_size"
                              : "more than max_grid = 6 along one side; raise it to 7, or shrink images by "
                                "data.max_image_size";
  try {
    (void)features(*section, large);
    FAIL() << "not refused";
  } catch (const JobError& error) {
    EXPECT_EQ(std::string(error.what()), "vision: sample 1: image 1 has 2 x 7 patches, " + fix);
  }
  large.places[1] = -1;
  EXPECT_THROW((void)features(*section, large), JobError);
}

TEST_P(VisionPositions, a_pass_leaves_nothing_in_the_arena_and_costs_what_it_says) {
  const auto section = encoder(true);
  const Pictures one = Pictures::random(5, {{{3, 4}}}, 2);
  const Batch batch = one.batch();
  {
    MicroBatch pass(bench, *section, batch);
    one.connect(pass);
    pass.forward();
    const auto held = static_cast<double>(bench.arena.used_bytes());
    const double said = section->cost({.tokens = 0, .patches = 12, .images = 1}).bytes;
    EXPECT_GT(held, said);
    EXPECT_LT(held, 1.6 * said);  // closures and per-row statistics are large relative to so small a width
  }
  EXPECT_EQ(bench.arena.used_bytes(), 0u);
}

TEST_P(VisionPositions, a_frozen_encoder_computes_the_same) {
  const auto section = encoder();
  const std::vector<float> before = features(*section, pictures);
  section->freeze();
  EXPECT_TRUE(section->shareable());
  EXPECT_EQ(features(*section, pictures), before);
}

TEST_P(VisionPositions, bf16_follows_fp32) {
  const auto exact = encoder();
  const auto rounded = encoder(false, DType::bf16);
  const std::vector<float> a = features(*exact, pictures), b = features(*rounded, pictures, DType::bf16);
  EXPECT_NE(a, b);
  expect_near(a, b, 0.15);  // features of 1 to 3 after some twenty roundings to eight bits
}

TEST_P(VisionPositions, state_survives_the_way_out_and_in) {
  const auto section = encoder(true);
  const TemporaryFolder out;
  save_weights(*section, out.path()).or_throw();
  VisionEncoder again(bench.context("other", true), {read_hf_vision_config(out.path()).value_or_throw(), {}});
  load_weights(again, out.path()).or_throw();
  EXPECT_TRUE(std::ranges::equal(again.parameters().values(), section->parameters().values()));
  EXPECT_EQ(again.config_json(), section->config_json());
}

INSTANTIATE_TEST_SUITE_P(positions, VisionPositions, ::testing::Values(PatchPositions::learned, PatchPositions::grid),
                         [](const auto& test) { return test.param == PatchPositions::grid ? "grid" : "learned"; });

TEST(VisionEncoder, building_twice_gives_bitwise_equal_parameters) {  // SE-3
  const Bench bench;
  const VisionEncoder::Options options{tiny_vision(PatchPositions::grid), {}};
  VisionEncoder first(bench.context("vision", true), options), second(bench.context("vision", false), options);
  EXPECT_TRUE(std::ranges::equal(first.parameters().values(), second.parameters().values()));
}

TEST(VisionEncoder, flops_count_embedding_products_and_pairs_within_each_picture) {
  const Bench bench;
  VisionEncoder encoder(bench.context("vision", false), {tiny_vision(PatchPositions::learned), {}});
  const double embedding = 2.0 * 12 * 12 * 16;
  const double products = 2.0 * 12 * 16 * (4 * 16 + 2 * 24);
  const double pairs = 2.0 * 2 * 12 * 4 * 16;  // 3 images of 4 patches
  EXPECT_DOUBLE_EQ(encoder.cost({.tokens = 99, .patches = 12, .images = 3}).flops, embedding + 2 * (products + pairs));
  EXPECT_EQ(encoder.cost({.tokens = 99, .patches = 0, .images = 0}).flops, 0);
  EXPECT_EQ(encoder.cost({.tokens = 99, .patches = 12, .images = 3}).bytes, 0) << "nothing is kept for a frozen one";
}

DataShape shape_of(const std::vector<PatchGrid>& pictures) {
  DataShape data;
  for (const PatchGrid& grid : pictures) data.pictures.add(grid);
  return data;
}

std::string refusal(const VisionConfig& config, const DataShape& data) {
  const Bench bench;
  try {
    VisionEncoder encoder(bench.context("vision", false), {config, data});
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(VisionEncoder, a_learned_table_is_as_large_as_the_largest_picture_unless_stated) {
  const Bench bench;
  VisionConfig config = tiny_vision(PatchPositions::learned);
  const DataShape data = shape_of({{3, 4}, {1, 4}, {2, 4}});
  VisionEncoder stated(bench.context("vision", false), {config, data});
  EXPECT_EQ(stated.vision().max_patches, 12);
  config.max_patches = 0;
  VisionEncoder fitted(bench.context("vision", false), {config, data});
  EXPECT_EQ(fitted.parameters().find("vision_model.embeddings.position_embedding.weight")->shape(), (Shape{12, 16}));
  EXPECT_EQ(fitted.vision().columns, 4) << "all images have as many, so the table has a grid";
  EXPECT_TRUE(fitted.notes().empty());
  VisionEncoder mixed(bench.context("vision", false), {config, shape_of({{3, 4}, {4, 2}})});
  EXPECT_EQ(mixed.vision().max_patches, 12);
  EXPECT_EQ(mixed.vision().columns, 0);
}

TEST(VisionEncoder, pictures_that_a_table_cannot_hold_are_refused_before_the_first_step) {
  VisionConfig config = tiny_vision(PatchPositions::learned);
  EXPECT_EQ(refusal(config, shape_of({{3, 4}, {4, 3}})), "accepted");
  EXPECT_EQ(refusal(config, shape_of({{2, 7}, {4, 3}})),
            "vision: the data's images have up to 2 x 7 patches, more than max_patches = 12; raise it to 14, or shrink "
            "images by data.image_size");
  config.stored = true;
  EXPECT_EQ(refusal(config, shape_of({{2, 7}, {4, 3}})),
            "vision: the data's images have up to 2 x 7 patches, more than max_patches = 12; shrink images by "
            "data.image_size")
      << "a stored table cannot grow";
  config.columns = 3;
  EXPECT_EQ(refusal(config, shape_of({{4, 3}, {1, 2}})), "accepted");
  EXPECT_EQ(refusal(config, shape_of({{2, 2}, {1, 4}})),
            "vision: the data's images have up to 2 x 4 patches, more than the position table's 4 x 3; set "
            "data.image_size = 6 at most");
  config = tiny_vision(PatchPositions::grid);
  EXPECT_EQ(refusal(config, shape_of({{6, 6}})), "accepted");
  EXPECT_EQ(refusal(config, shape_of({{1, 7}})),
            "vision: the data's images have up to 1 x 7 patches, more than max_grid = 6 along one side; raise it to 7, "
            "or shrink images by data.max_image_size");
}

TEST(VisionEncoder, a_picture_takes_the_entries_of_its_places_in_the_tables_own_grid) {  // VE-2
  Bench bench;
  VisionConfig config = tiny_vision(PatchPositions::learned);
  config.columns = 4;  // 3 x 4 entries
  VisionEncoder section(bench.context("vision", true), {config, {}});
  randomise(section, 3);
  const Pictures one = Pictures::random(5, {{{2, 3}}, {{3, 1}}}, 2);
  const Batch batch = one.batch();
  MicroBatch pass(bench, section, batch);
  one.connect(pass);
  pass.forward();
  std::vector<float> seed(9 * 16);
  for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<float>(i % 7) - 3;
  pass.seed("features", Tensor(seed.data(), DType::f32, {9, 16}));
  pass.backward();
  const Tensor& gradient = section.parameters().find("vision_model.embeddings.position_embedding.weight")->gradient();
  std::vector<std::int64_t> learning;
  for (std::int64_t row = 0; row < gradient.rows(); ++row) {
    const auto values = gradient.row_slice(row, 1).span<float>();
    if (std::ranges::any_of(values, [](float value) { return value != 0; })) learning.push_back(row);
  }
  EXPECT_EQ(learning, (std::vector<std::int64_t>{0, 1, 2, 4, 5, 6, 8}));
}

TEST(VisionEncoder, a_picture_beyond_the_tables_own_grid_is_refused_though_the_table_has_as_many_entries) {
  Bench bench;
  VisionConfig config = tiny_vision(PatchPositions::learned);
  config.columns = 4;
  VisionEncoder section(bench.context("vision", false), {config, {}});
  const Pictures large = Pictures::random(5, {{{1, 1}}, {{4, 3}}}, 2);
  const Batch batch = large.batch();
  MicroBatch pass(bench, section, batch, Pass::evaluate);
  large.connect(pass);
  try {
    pass.forward();
    FAIL() << "not refused";
  } catch (const JobError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "vision: sample 1: image 0 has 4 x 3 patches, more than the position table's 3 x 4; set data.image_size = 6 "
        "at most");
  }
}

TEST(VisionEncoder, pictures_that_fill_a_part_of_a_stored_table_are_noted_with_the_size_that_fills_it) {
  const Bench bench;
  VisionConfig config = tiny_vision(PatchPositions::learned);
  config.max_patches = 9;
  config.columns = 3;
  const auto notes = [&](const std::vector<PatchGrid>& pictures) {
    return VisionEncoder(bench.context("vision", false), {config, shape_of(pictures)}).notes();
  };
  EXPECT_TRUE(notes({{2, 2}}).empty()) << "a table of the job's own";
  config.stored = true;
  EXPECT_EQ(notes({{2, 2}, {1, 2}}),
            std::vector<std::string>{"images have up to 2 x 2 patches and take the first of the 3 x 3 entries of the "
                                     "stored position table; data.image_size = 6 fills it"});
  EXPECT_TRUE(notes({{3, 2}, {1, 1}}).empty()) << "a portrait at full size";
  EXPECT_TRUE(notes({}).empty());
}

TEST(VisionEncoder, a_shape_that_is_no_encoder_is_refused) {
  const Bench bench;
  VisionConfig config = tiny_vision(PatchPositions::learned);
  config.heads = 3;
  EXPECT_THROW(VisionEncoder(bench.context("vision", false), {config, {}}), JobError);
  config = tiny_vision(PatchPositions::learned);
  config.layers = 0;
  EXPECT_THROW(VisionEncoder(bench.context("vision", false), {config, {}}), JobError);
}

}  // namespace
}  // namespace maestro::testing
