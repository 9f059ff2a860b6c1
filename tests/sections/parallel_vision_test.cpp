// SPDX-License-Identifier: Apache-2.0
// Vision encoder, projector and the decoder that reads images over ranks, against a single rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/data/corpus.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/vision_pictures.hpp"

namespace maestro::testing {
namespace {

// Sums over ranks are formed in another order than on a single rank.
constexpr double loss_tolerance = 1e-6;
constexpr double tolerance = 1e-5;
constexpr std::int64_t width = 32;
constexpr std::int64_t vocabulary = 37;  // no degree divides it
// Two pictures in the same sample, a sample without, pictures of other sizes: no boundary of any layout below lies
// between samples or pictures alone.
const std::vector<std::vector<PictureSize>> shown = {{{2, 3}, {1, 2}}, {}, {{3, 3}}, {{1, 1}, {2, 2}}};

VisionConfig encoder_shape(PatchPositions positions) {
  VisionConfig config = tiny_vision(positions);
  config.heads = 4;
  return config;
}

DecoderConfig decoder_shape(const std::string& family) {
  DecoderConfig config = tiny_decoder(family);
  config.width = width;
  config.heads = 8;
  config.kv_heads = family == "llama" ? 4 : 0;
  return config;
}

ParallelBench::Build encoder_of(const VisionConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<VisionEncoder>(context, VisionEncoder::Options{config, {}});
  };
}
ParallelBench::Build projector_to(std::int64_t columns, std::optional<DType> features = {}) {
  return [columns, features](const SectionContext& context) {
    return std::make_unique<Projector>(context, Projector::Options{{16, columns, 0.02}, features, {}});
  };
}
ParallelBench::Build decoder_of(const std::string& family, std::optional<DType> visual = {}) {
  return [family, visual](const SectionContext& context) {
    return std::make_unique<VisionLanguageDecoder>(context,
                                                   VisionLanguageDecoder::Options{decoder_shape(family), visual, {}});
  };
}

OwnedTensor random_tensor(std::uint64_t seed, std::int64_t rows, std::int64_t columns, DType dtype = DType::f32) {
  std::mt19937 generator(static_cast<std::mt19937::result_type>(seed));
  return {dtype, {rows, columns}, exact_normals(generator, rows * columns)};
}

void expect_near(const OwnedTensor& found, const OwnedTensor& expected, const std::string& name) {
  EXPECT_LE(worst_error(found.values(), expected.values(), 1e-6), tolerance) << name;
}

void expect_same_metrics(const ParallelPass& found, const ParallelPass& expected) {
  ASSERT_EQ(found.metrics.size(), expected.metrics.size());
  for (const MetricSum& metric : expected.metrics) {
    EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, loss_tolerance * metric.sum) << metric.name;
    EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
  }
}

void expect_same_passes(const ParallelPass& found, const ParallelPass& expected) {
  expect_same_metrics(found, expected);
  for (const auto& [name, tensor] : expected.outputs) expect_near(found.outputs.at(name), tensor, name);
  for (const auto& [name, tensor] : expected.input_gradients) {
    expect_near(found.input_gradients.at(name), tensor, name);
  }
}

/// Takes the gradients of key biases out: a key bias adds the same to all scores of a query, which softmax does not
/// see, so nothing but rounding is left of its gradient, and that has no relative size.
void expect_no_key_bias_learns(TensorSnapshot& gradients, double norm) {
  std::erase_if(gradients.tensors, [&](const NamedTensor& each) {
    if (!each.name.ends_with("k_proj.bias")) return false;
    for (const float value : each.tensor.span<float>()) EXPECT_NEAR(value, 0, tolerance * norm) << each.name;
    return true;
  });
}

void expect_same_gradients(ParallelBench& found, ParallelBench& expected) {
  const double squares = expected.gradient_sum_of_squares();
  EXPECT_NEAR(found.gradient_sum_of_squares(), squares, tolerance * squares);
  TensorSnapshot gradients = found.whole(ParameterBuffer::gradients);
  TensorSnapshot of_one_rank = expected.whole(ParameterBuffer::gradients);
  for (TensorSnapshot* each : {&gradients, &of_one_rank}) expect_no_key_bias_learns(*each, std::sqrt(squares));
  expect_close(gradients, of_one_rank, tolerance);
}

/// A section on a single rank and on the ranks of a layout, with the same values, large enough that every term matters.
struct Pair {
  Pair(const SectionContext& context, Layout layout, const ParallelBench::Build& build)
      : single({}, context, build), ranks(layout, context, build) {
    EXPECT_TRUE(ranks.section(0).spreads_over_ranks());
    expect_same(ranks.whole(), single.whole());  // PA-3
    randomise(single.section(0), 11);
    ranks.load(single.whole());
  }
  void freeze(std::int64_t count) {
    single.section(0).freeze();
    for (std::int64_t rank = 0; rank < count; ++rank) {
      ranks.section(rank).freeze();
      EXPECT_FALSE(ranks.section(rank).shareable());  // ranks meet in collectives
    }
  }
  /// Trains, compares everything, and returns the results of a single rank.
  ParallelPass expect_equal(const Batch& batch, const std::vector<Feed>& feeds,
                            const std::map<std::string, Tensor>& gradients = {}) {
    ParallelPass expected = single.run(batch, Pass::train, feeds, gradients);
    expect_same_passes(ranks.run(batch, Pass::train, feeds, gradients), expected);
    expect_same_gradients(ranks, single);
    return expected;
  }
  ParallelBench single, ranks;
};

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

class DecoderWithEyesOverRanks : public ::testing::TestWithParam<Layout> {
 protected:
  void expect_equal_decoders(const Batch& given) {
    const auto patches = static_cast<std::int64_t>(given.patch_positions.size());
    const OwnedTensor visual = random_tensor(3, patches, width);
    const std::vector<Feed> feeds = {{"visual", visual, true}};
    for (const char* family : {"gpt2", "llama"}) {
      Pair decoders(bench.context("decoder", true), GetParam(), decoder_of(family));
      const ParallelPass expected = decoders.expect_equal(given, feeds);
      const Values gradient = expected.input_gradients.at("visual").values();
      EXPECT_TRUE(gradient.empty() || std::ranges::any_of(gradient, [](double value) { return value != 0; }));
      expect_same_metrics(decoders.ranks.run(given, Pass::evaluate, feeds),
                          decoders.single.run(given, Pass::evaluate, feeds));
    }
  }
  Bench bench;
  Pictures pictures = Pictures::random(4, shown, 2);
  Batch batch = illustrated(pictures, 7, vocabulary);
};

TEST_P(DecoderWithEyesOverRanks, losses_matches_and_gradients_are_those_of_one_rank) {  // VD-5
  expect_equal_decoders(batch);
}

TEST_P(DecoderWithEyesOverRanks, ranks_may_have_no_image_or_no_target) {  // VD-3
  // Images lie before the first boundary of two, targets behind the last of four.
  expect_equal_decoders(illustrated(Pictures::random(4, {{{1, 2}}, {}, {}}, 2), 9, vocabulary));
  std::fill(batch.targets.begin(), batch.targets.end() - 4, ignored_target);
  expect_equal_decoders(batch);
  // One image, one word, one target: fewer rows than ranks of the larger layouts.
  Batch small({image_token, 5}, {ignored_target, 6}, {0, 2});
  expect_equal_decoders(small.with_patches({1}));
}

TEST_P(DecoderWithEyesOverRanks, micro_batches_without_pictures_train_as_on_one_rank) {  // VD-3
  Pair decoders(bench.context("decoder", true), GetParam(), decoder_of("gpt2"));
  decoders.expect_equal(Batch::random(5, {9, 1, 12}, vocabulary), {});  // visual is not connected
  EXPECT_GT(decoders.single.gradient_sum_of_squares(), 0);
  const OwnedTensor none(DType::f32, {0, width});
  Batch text = illustrated(Pictures::random(4, {{}, {}}, 2), 7, vocabulary);
  decoders.expect_equal(text, {{"visual", none, true}});  // connected, without rows
}

TEST_P(DecoderWithEyesOverRanks, without_any_target_the_loss_is_zero_of_zero_and_nothing_learns) {  // VD-3
  std::ranges::fill(batch.targets, ignored_target);
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  ParallelBench ranks(GetParam(), bench.context("decoder", true), decoder_of("llama"));
  for (const Pass pass : {Pass::train, Pass::evaluate}) {
    const ParallelPass found = ranks.run(batch, pass, {{"visual", visual, true}});
    EXPECT_EQ(found.metric("loss").sum, 0);
    EXPECT_EQ(found.metric("loss").weight, 0);
    if (pass == Pass::evaluate) {
      EXPECT_EQ(found.metric("exact_match").weight, 0);
      continue;
    }
    EXPECT_EQ(ranks.gradient_sum_of_squares(), 0);
    for (const double value : found.input_gradients.at("visual").values()) ASSERT_EQ(value, 0);
  }
}

TEST_P(DecoderWithEyesOverRanks, frozen_it_hands_the_gradient_of_one_rank_to_visual) {  // VD-4
  SectionContext context = bench.context("decoder", false);
  context.passes_gradient = true;
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  for (const char* family : {"gpt2", "llama"}) {
    Pair decoders(context, GetParam(), decoder_of(family));
    decoders.freeze(GetParam().ranks());
    const auto pass = [&](ParallelBench& of) { return of.run(batch, Pass::train, {{"visual", visual, true}}); };
    const ParallelPass expected = pass(decoders.single);
    expect_same_passes(pass(decoders.ranks), expected);
    EXPECT_GT(std::ranges::max(expected.input_gradients.at("visual").values()), 0);
  }
}

TEST_P(DecoderWithEyesOverRanks, visual_of_another_precision_gets_its_gradient_in_that) {
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width, DType::bf16);
  Pair decoders(bench.context("decoder", true), GetParam(), decoder_of("gpt2", DType::bf16));
  const auto pass = [&](ParallelBench& of) { return of.run(batch, Pass::train, {{"visual", visual, true}}); };
  const ParallelPass expected = pass(decoders.single), found = pass(decoders.ranks);
  ASSERT_EQ(found.input_gradients.at("visual").tensor().dtype(), DType::bf16);
  // Each row is a single rank's, so sums round nothing; the last of eight bits may differ as its f32 gradient did.
  EXPECT_LE(worst_error(found.input_gradients.at("visual").values(), expected.input_gradients.at("visual").values()),
            0.004);
  expect_same_gradients(decoders.ranks, decoders.single);
}

TEST_P(DecoderWithEyesOverRanks, exact_match_wants_the_targets_of_a_sample_on_every_rank) {  // VD-5
  const std::vector<std::int32_t> lengths = {32, 32, 31, 2};  // the middle of 97 rows lies within sample 1
  Batch text = Batch::random(5, lengths, vocabulary);
  Pair decoders(bench.context("decoder", false), GetParam(), decoder_of("gpt2"));
  ParallelBench top({}, bench.context("decoder", false), [](const SectionContext& context) {
    const DecoderTrunk::Options options{decoder_shape("gpt2"), TeacherOutput::top_k, 1, {}};
    return std::make_unique<DecoderTrunk>(context, options);
  });
  top.load(decoders.single.whole());
  std::ranges::copy(top.run(text, Pass::evaluate).outputs.at("top_indices").tensor().span<std::int32_t>(),
                    text.targets.begin());
  std::fill(text.targets.begin() + 64, text.targets.begin() + 90, ignored_target);  // sample 2: the last five only
  std::fill(text.targets.begin() + 95, text.targets.end(), ignored_target);         // sample 3: none
  const auto expect_matches = [&](double matches, const char* what) {
    const MetricSum found = decoders.ranks.run(text, Pass::evaluate).metric("exact_match");
    EXPECT_EQ(found.sum, matches) << what;
    EXPECT_EQ(found.weight, 3) << what;
  };
  expect_matches(3, "all right");
  for (const std::size_t row : {32U, 47U, 48U, 63U}) {
    const std::int32_t right = text.targets[row];
    text.targets[row] = (right + 1) % static_cast<std::int32_t>(vocabulary);
    expect_matches(2, "one row of sample 1 wrong, on either side of the boundary");
    text.targets[row] = right;
  }
  for (const std::size_t row : {40U, 60U, 94U}) {
    text.targets[row] = (text.targets[row] + 1) % static_cast<std::int32_t>(vocabulary);
  }
  expect_matches(1, "a sample that is wrong on both sides counts once");
}

TEST_P(DecoderWithEyesOverRanks, image_tokens_and_rows_that_do_not_match_are_refused_on_every_rank) {
  ParallelBench ranks(GetParam(), bench.context("decoder", false), decoder_of("gpt2"));
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  batch.with_patches({8, 1, 8, 5});  // as many in all, but not in each sample
  try {
    (void)ranks.run(batch, Pass::evaluate, {{"visual", visual}});
    FAIL() << "not refused";
  } catch (const JobError& error) {
    EXPECT_EQ(std::string(error.what()).find("decoder: sample 1 has 0 image tokens, but its images bring 1 rows"), 0U);
  }
}

const auto layouts = ::testing::Values(Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{4, 1}, Layout{1, 4});
const auto name_of = [](const auto& test) {
  return std::to_string(test.param.tensor) + "x" + std::to_string(test.param.context);
};
INSTANTIATE_TEST_SUITE_P(layouts, VisionOverRanks, layouts, name_of);
INSTANTIATE_TEST_SUITE_P(layouts, DecoderWithEyesOverRanks, layouts, name_of);

/// The three sections, each on ranks of its own.
struct Model {
  Model(const Bench& bench, Layout seeing, Layout projecting, Layout deciding)
      : vision(seeing, bench.context("vision", true), encoder_of(encoder_shape(PatchPositions::grid))),
        projector(projecting, bench.context("projector", true), projector_to(width)),
        decoder(deciding, bench.context("decoder", true), decoder_of("llama")) {}
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
  context.prototype = true;
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
  EXPECT_EQ(refusal(bench, {4, 2}, "vision", encoder_of(config)),
            "vision.context = 2: 4 heads cannot be cut in tensor * context = 8; nearest that fits: tensor = 4, "
            "context = 1");
  config.ffn = 30;
  EXPECT_EQ(refusal(bench, {4, 1}, "vision", encoder_of(config)),
            "vision.tensor = 4: 30 ffn cannot be cut in 4; nearest that fits: tensor = 2");
  EXPECT_EQ(refusal(bench, {3, 2}, "projector", projector_to(31)), "fits");
  EXPECT_EQ(refusal(bench, {4, 1}, "projector", projector_to(3)),
            "projector.tensor = 4: a width of 3 cannot be cut in 4; nearest that fits: tensor = 3");
  EXPECT_EQ(refusal(bench, {8, 1}, "decoder", decoder_of("llama")),
            "decoder.tensor = 8: 4 kv_heads cannot be cut in 8; nearest that fits: tensor = 4");
}

TEST(VisionModelOverRanks, only_without_a_tensor_group_do_image_positions_skip_the_end_of_the_last_layer) {  // VD-5
  const Bench bench;
  const auto flops = [&](Layout layout) {
    SectionContext context = bench.context("decoder", true);
    context.prototype = true;
    context.parallel.layout = layout;
    return decoder_of("gpt2")(context)->cost({.tokens = 20, .patches = 8, .images = 1}).flops;
  };
  EXPECT_DOUBLE_EQ(flops({1, 4}), flops({}));
  EXPECT_DOUBLE_EQ(flops({2, 1}) - flops({}), 2.0 * 8 * width * (width + 2 * 24));
}

}  // namespace
}  // namespace maestro::testing
