// SPDX-License-Identifier: Apache-2.0
// Vision encoder, projector and the complete model over ranks, against a single rank.
#include <gtest/gtest.h>

#include "tests/sections/parallel_vision.hpp"

namespace maestro::testing {
namespace {

class VisionOverRanks : public ::testing::TestWithParam<Layout> {
 protected:
  void expect_equal_encoders(const Pictures& pictures) {
    const OwnedTensor gradient = random_tensor(8, pictures.rows(), 16);
    for (const PatchPositions positions : {PatchPositions::learned, PatchPositions::grid}) {
      Pair encoders(bench.context("vision", true), GetParam(), encoder_of(encoder_shape(positions)));
      encoders.expect_equal(pictures.batch(), feeds_of(pictures), {{"features", gradient}});
      if (pictures.rows() > 1) {
        EXPECT_GT(encoders.single.gradient_sum_of_squares(), 0);
      }
    }
  }
  static std::vector<Feed> feeds_of(const Pictures& pictures) {
    return {{"pixels", pictures.pixel_tensor()}, {"places", pictures.place_tensor()}};
  }
  Bench bench;
};

TEST_P(VisionOverRanks, features_and_gradients_of_the_encoder_are_those_of_one_rank) {  // VE-3
  expect_equal_encoders(Pictures::random(4, shown, 2));
}

TEST_P(VisionOverRanks, an_encoder_takes_fewer_patches_than_ranks) {
  expect_equal_encoders(Pictures::random(4, {{}, {{1, 2}}, {{1, 1}}}, 2));
  expect_equal_encoders(Pictures::random(4, {{{2, 1}}}, 2));
}

TEST_P(VisionOverRanks, a_frozen_encoder_gives_the_features_of_one_rank) {
  const Pictures pictures = Pictures::random(4, shown, 2);
  Pair encoders(bench.context("vision", false), GetParam(), encoder_of(encoder_shape(PatchPositions::grid)));
  encoders.freeze(GetParam().ranks());
  const auto pass = [&](ParallelBench& of) { return of.run(pictures.batch(), Pass::evaluate, feeds_of(pictures)); };
  expect_same_passes(pass(encoders.ranks), pass(encoders.single));
}

TEST_P(VisionOverRanks, the_projector_is_that_of_one_rank_also_when_its_width_has_parts_of_two_sizes) {
  for (const std::int64_t patches : {15, 1}) {
    Batch batch({0}, {0}, {0, 1});
    batch.with_patches({static_cast<std::int32_t>(patches)});
    const OwnedTensor features = random_tensor(5, patches, 16), gradient = random_tensor(6, patches, 31);
    Pair projectors(bench.context("projector", true), GetParam(), projector_to(31));
    projectors.expect_equal(batch, {{"features", features, true}}, {{"visual", gradient}});
    EXPECT_GT(projectors.single.gradient_sum_of_squares(), 0);
  }
}

TEST_P(VisionOverRanks, a_frozen_projector_passes_the_gradient_of_one_rank_on) {
  Batch batch({0}, {0}, {0, 1});
  batch.with_patches({15});
  const OwnedTensor features = random_tensor(5, 15, 16), gradient = random_tensor(6, 15, width);
  SectionContext context = bench.context("projector", false);
  context.passes_gradient = true;
  Pair projectors(context, GetParam(), projector_to(width));
  projectors.freeze(GetParam().ranks());
  const auto pass = [&](ParallelBench& of) {
    return of.run(batch, Pass::train, {{"features", features, true}}, {{"visual", gradient}});
  };
  expect_same_passes(pass(projectors.ranks), pass(projectors.single));
}

INSTANTIATE_TEST_SUITE_P(layouts, VisionOverRanks, layouts, layout_name);

/// The three sections, each with a separate layout.
struct Model {
  Model(const Bench& bench, Layout seeing, Layout projecting, Layout deciding)
      : vision(seeing, bench.context("vision", true), encoder_of(encoder_shape(PatchPositions::grid))),
        projector(projecting, bench.context("projector", true), projector_to(width)),
        decoder(deciding, bench.context("decoder", true), decoder_of(DecoderFamily::llama)) {}
  [[nodiscard]] std::vector<ParallelBench*> all() { return {&vision, &projector, &decoder}; }
  ParallelPass train(const Batch& batch, const Pictures& pictures) {
    const std::vector<Feed> seen = {{"pixels", pictures.pixel_tensor()}, {"places", pictures.place_tensor()}};
    const ParallelPass features = vision.run(batch, Pass::evaluate, seen);
    const std::vector<Feed> below = {{"features", features.outputs.at("features"), true}};
    const ParallelPass visual = projector.run(batch, Pass::evaluate, below);
    ParallelPass losses = decoder.run(batch, Pass::train, {{"visual", visual.outputs.at("visual"), true}});
    const ParallelPass back = projector.run(batch, Pass::train, below, {{"visual", gradient(losses, "visual")}});
    vision.run(batch, Pass::train, seen, {{"features", gradient(back, "features")}});
    return losses;
  }
  static Tensor gradient(const ParallelPass& pass, const std::string& port) { return pass.input_gradients.at(port); }

  ParallelBench vision, projector, decoder;
};

TEST(VisionModelOverRanks, three_sections_of_different_layouts_learn_what_they_do_on_one_rank_each) {
  const Bench bench;
  const Pictures pictures = Pictures::random(4, shown, 2);
  const Batch batch = illustrated(pictures, 7, vocabulary);
  Model single(bench, {}, {}, {}), ranks(bench, {2, 2}, {1, 2}, {4, 1});
  for (std::size_t i = 0; i < single.all().size(); ++i) {
    randomise(single.all()[i]->section(0), 21);
    ranks.all()[i]->load(single.all()[i]->whole());
  }
  const ParallelPass expected = single.train(batch, pictures);
  expect_same_passes(ranks.train(batch, pictures), expected);
  for (std::size_t i = 0; i < single.all().size(); ++i) {
    EXPECT_GT(single.all()[i]->gradient_sum_of_squares(), 0);
    expect_same_gradients(*ranks.all()[i], *single.all()[i]);
  }
}

std::string refusal(const Bench& bench, Layout layout, const char* name, const ParallelBench::Build& build) {
  SectionContext context = bench.context(name, true);
  context.meta = true;
  context.parallel.layout = layout;
  try {
    (void)build(context);
  } catch (const JobError& error) {
    return error.what();
  }
  return "fits";
}

TEST(VisionModelOverRanks, a_layout_that_does_not_fit_is_refused_with_the_nearest_that_does) {
  const Bench bench;
  VisionConfig config = encoder_shape(PatchPositions::learned);
  EXPECT_EQ(refusal(bench, {2, 2}, "vision", encoder_of(config)), "fits");
  EXPECT_EQ(refusal(bench, {4, 2}, "vision", encoder_of(config)), "fits");
  EXPECT_EQ(refusal(bench, {8, 2}, "vision", encoder_of(config)),
            "vision.tensor = 8: 4 heads cannot be cut in 8; nearest that fits: tensor = 4, context = 2");
  config.ffn = 30;
  EXPECT_EQ(refusal(bench, {4, 1}, "vision", encoder_of(config)),
            "vision.tensor = 4: 30 ffn cannot be cut in 4; nearest that fits: tensor = 2");
  EXPECT_EQ(refusal(bench, {3, 2}, "projector", projector_to(31)), "fits");
  EXPECT_EQ(refusal(bench, {4, 1}, "projector", projector_to(3)),
            "projector.tensor = 4: a width of 3 cannot be cut in 4; nearest that fits: tensor = 3");
  EXPECT_EQ(refusal(bench, {8, 1}, "decoder", decoder_of(DecoderFamily::llama)),
            "decoder.tensor = 8: 4 kv_heads cannot be cut in 8; nearest that fits: tensor = 4");
}

TEST(VisionModelOverRanks, only_without_a_tensor_group_do_image_positions_skip_the_end_of_the_last_layer) {  // VD-5
  const Bench bench;
  const auto flops = [&](Layout layout) {
    SectionContext context = bench.context("decoder", true);
    context.meta = true;
    context.parallel.layout = layout;
    return decoder_of(DecoderFamily::gpt2)(context)->cost({.tokens = 20, .patches = 8, .visual = 8, .images = 1}).flops;
  };
  EXPECT_DOUBLE_EQ(flops({1, 4}), flops({}));
  EXPECT_DOUBLE_EQ(flops({2, 1}) - flops({}), 2.0 * 8 * width * (width + 2 * 24));
}

}  // namespace
}  // namespace maestro::testing
