// SPDX-License-Identifier: Apache-2.0
// The decoder that reads images, over ranks against a single rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/data/corpus.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "tests/sections/parallel_vision.hpp"

namespace maestro::testing {
namespace {

class DecoderWithEyesOverRanks : public ::testing::TestWithParam<Layout> {
 protected:
  void expect_equal_decoders(const Batch& given) {
    const auto patches = static_cast<std::int64_t>(given.patch_positions.size());
    const OwnedTensor visual = random_tensor(3, patches, width);
    const std::vector<Feed> feeds = {{"visual", visual, true}};
    for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
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

TEST_P(DecoderWithEyesOverRanks, losses_matches_and_gradients_are_those_of_one_rank) {  // VD-5, IP-2
  expect_equal_decoders(batch);
}

TEST_P(DecoderWithEyesOverRanks, rows_see_later_rows_as_on_one_rank) {  // IP-3
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  std::set<double> losses;
  for (const ImageMask mask : {ImageMask::causal, ImageMask::images, ImageMask::prefix}) {
    DecoderConfig config = decoder_shape(DecoderFamily::llama);
    config.image_mask = mask;
    const std::vector<std::int32_t> marks = marks_of(batch, {.mask = mask});
    std::vector<Feed> feeds = {{"visual", visual, true}};
    if (mask != ImageMask::causal) feeds.push_back({"marks", mark_tensor(marks)});
    Pair decoders(bench.context("decoder", true), GetParam(), [&](const SectionContext& context) {
      return std::make_unique<VisionLanguageDecoder>(context, VisionLanguageDecoder::Options{config, {}, {}});
    });
    losses.insert(decoders.expect_equal(batch, feeds).metric("loss").sum);
  }
  EXPECT_EQ(losses.size(), 3U) << "each mask has a loss of its own";
}

TEST_P(DecoderWithEyesOverRanks, ranks_may_have_no_image_or_no_target) {  // VD-3
  // All images are before the first boundary of two, all targets after the last boundary of four.
  expect_equal_decoders(illustrated(Pictures::random(4, {{{1, 2}}, {}, {}}, 2), 9, vocabulary));
  std::fill(batch.targets.begin(), batch.targets.end() - 4, ignored_target);
  expect_equal_decoders(batch);
  // One image, one word, one target: fewer rows than ranks of the larger layouts.
  Batch small({image_token, 5}, {ignored_target, 6}, {0, 2});
  expect_equal_decoders(small.with_patches({1}));
}

TEST_P(DecoderWithEyesOverRanks, micro_batches_without_pictures_train_as_on_one_rank) {  // VD-3
  Pair decoders(bench.context("decoder", true), GetParam(), decoder_of(DecoderFamily::gpt2));
  decoders.expect_equal(Batch::random(5, {9, 1, 12}, vocabulary), {});  // visual is not connected
  EXPECT_GT(decoders.single.gradient_sum_of_squares(), 0);
  const OwnedTensor none(DType::f32, {0, width});
  Batch text = illustrated(Pictures::random(4, {{}, {}}, 2), 7, vocabulary);
  decoders.expect_equal(text, {{"visual", none, true}});  // connected, without rows
}

TEST_P(DecoderWithEyesOverRanks, without_any_target_the_loss_is_zero_of_zero_and_nothing_learns) {  // VD-3
  std::ranges::fill(batch.targets, ignored_target);
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  ParallelBench ranks(GetParam(), bench.context("decoder", true), decoder_of(DecoderFamily::llama));
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
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
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
  Pair decoders(bench.context("decoder", true), GetParam(), decoder_of(DecoderFamily::gpt2, DType::bf16));
  const auto pass = [&](ParallelBench& of) { return of.run(batch, Pass::train, {{"visual", visual, true}}); };
  const ParallelPass expected = pass(decoders.single), found = pass(decoders.ranks);
  ASSERT_EQ(found.input_gradients.at("visual").tensor().dtype(), DType::bf16);
  // Each row is on a single rank, so sums do not round; the last of eight bits may differ if the f32 gradient did.
  EXPECT_LE(worst_error(found.input_gradients.at("visual").values(), expected.input_gradients.at("visual").values()),
            0.004);
  expect_same_gradients(decoders.ranks, decoders.single);
}

TEST_P(DecoderWithEyesOverRanks, exact_match_wants_the_targets_of_a_sample_on_every_rank) {  // VD-5
  const std::vector<std::int32_t> lengths = {32, 32, 31, 2};  // the middle of 97 rows lies within sample 1
  Batch text = Batch::random(5, lengths, vocabulary);
  Pair decoders(bench.context("decoder", false), GetParam(), decoder_of(DecoderFamily::gpt2));
  ParallelBench top({}, bench.context("decoder", false), [](const SectionContext& context) {
    const DecoderTrunk::Options options{decoder_shape(DecoderFamily::gpt2), TeacherOutput::top_k, 1, {}};
    return std::make_unique<DecoderTrunk>(context, options);
  });
  top.load(decoders.single.whole());
  std::ranges::copy(top.run(text, Pass::evaluate).outputs.at("top_indices").tensor().span<std::int32_t>(),
                    text.targets.begin());
  std::fill(text.targets.begin() + 64, text.targets.begin() + 90, ignored_target);  // sample 2: only the last five
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
  ParallelBench ranks(GetParam(), bench.context("decoder", false), decoder_of(DecoderFamily::gpt2));
  const OwnedTensor visual = random_tensor(3, pictures.rows(), width);
  batch.with_patches({8, 1, 8, 5});  // as many patches in all, but not in each sample
  try {
    (void)ranks.run(batch, Pass::evaluate, {{"visual", visual}});
    FAIL() << "not refused";
  } catch (const JobError& error) {
    EXPECT_EQ(std::string(error.what()).find("decoder: sample 1 has 0 image tokens, but its images have 1 rows"), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(layouts, DecoderWithEyesOverRanks, layouts, layout_name);

}  // namespace
}  // namespace maestro::testing
