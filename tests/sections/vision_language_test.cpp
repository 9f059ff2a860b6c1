// SPDX-License-Identifier: Apache-2.0
// Vision encoder, projector and decoder together: gradients against differences, micro-batches without images or
// targets, exact matches, generated answers. vision_reference_test.cpp compares them with transformers.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/data/corpus.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/state_io.hpp"
#include "sections/vision/image_reader.hpp"
#include "tests/sections/parallel_vision.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

/// The three sections on a shared tape, as a section; parameters() returns the parameters of the section in focus.
class Chain final : public Section {
 public:
  Chain(const Bench& bench, DecoderFamily family, PatchPositions positions, bool trained = true)
      : vision(bench.context("vision", trained), {tiny_vision(positions), {}}),
        projector(bench.context("projector", trained), {{16, 16, 0.02}, {}, {}}),
        decoder(bench.context("decoder", trained), {tiny_decoder(family), {}, {}}) {
    for (Section* section : all()) randomise(*section, 21);
    // Rows as large as a trained model's: for small rows the norm's curvature makes differences inaccurate.
    for (float& value : projector.parameters().values()) value *= 3;
    projector.parameters().values_changed();
  }
  std::vector<Section*> all() { return {&vision, &projector, &decoder}; }
  [[nodiscard]] Ports ports() const override { return {}; }
  Parameters& parameters() override { return focus->parameters(); }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    Outputs seen, projected;
    vision.forward(tape, inputs, seen);
    Inputs below = inputs;
    below.set("features", *seen.find("features"));
    projector.forward(tape, below, projected);
    below.set("visual", *projected.find("visual"));
    decoder.forward(tape, below, outputs);
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return {}; }

  VisionEncoder vision;
  Projector projector;
  VisionLanguageDecoder decoder;
  Section* focus = &decoder;
};

class VisionLanguage : public ::testing::TestWithParam<DecoderFamily> {
 protected:
  [[nodiscard]] VisionLanguageDecoder decoder(bool trained) const {
    return VisionLanguageDecoder(bench.context("decoder", trained), {tiny_decoder(GetParam()), {}, {}});
  }
  Bench bench;
  Pictures pictures = Pictures::random(4, {{{2, 3}, {1, 2}}, {}, {{2, 2}}}, 2);
  Batch batch = illustrated(pictures, 7, 37);
  Connect connect = [this](MicroBatch& pass) { pictures.connect(pass); };
};

TEST_P(VisionLanguage, gradients_of_the_whole_chain_match_differences) {
  for (const PatchPositions positions : {PatchPositions::learned, PatchPositions::grid}) {
    Chain chain(bench, GetParam(), positions);
    for (Section* section : chain.all()) {
      chain.focus = section;
      expect_gradients_match_differences(bench, chain, batch, connect);
    }
  }
  EXPECT_EQ(bench.arena.used_bytes(), 0u);
}

TEST_P(VisionLanguage, a_micro_batch_without_pictures_is_that_of_decoder_lm) {  // VD-3
  auto with_eyes = decoder(true);
  DecoderLm blind(bench.context("decoder", true), {tiny_decoder(GetParam()), {}});
  const Batch text = Batch::random(5, {9, 1, 12}, 37);
  randomise(with_eyes, 9);
  randomise(blind, 9);
  EXPECT_NEAR(differentiate(bench, with_eyes, text), differentiate(bench, blind, text), 1e-6);
  const auto a = with_eyes.parameters().gradients(), b = blind.parameters().gradients();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
  EXPECT_NEAR(evaluate(bench, with_eyes, text), evaluate(bench, blind, text), 1e-6);
  EXPECT_NEAR(evaluate(bench, with_eyes, text, {}, "ce"), evaluate(bench, blind, text, {}, "ce"), 1e-6);
}

TEST_P(VisionLanguage, stores_what_decoder_lm_does) {
  auto with_eyes = decoder(true);
  randomise(with_eyes, 9);
  const TemporaryFolder out;
  save_weights(with_eyes, out.path()).or_throw();
  DecoderLm blind(bench.context("lm", true), {tiny_decoder(GetParam()), {}});
  load_weights(blind, out.path()).or_throw();
  EXPECT_TRUE(std::ranges::equal(blind.parameters().values(), with_eyes.parameters().values()));
}

TEST_P(VisionLanguage, without_any_target_the_loss_is_zero_of_zero_and_nothing_learns) {  // VD-3
  Chain chain(bench, GetParam(), PatchPositions::learned);
  std::ranges::fill(batch.targets, -1);
  for (Section* section : chain.all()) std::ranges::fill(section->parameters().gradients(), 0.0f);
  for (const Pass pass : {Pass::train, Pass::evaluate}) {
    MicroBatch run(bench, chain, batch, pass);
    pictures.connect(run);
    run.forward();
    EXPECT_EQ(run.metric_sum("loss").sum, 0);
    EXPECT_EQ(run.metric_sum("loss").weight, 0);
    if (pass == Pass::evaluate) {
      EXPECT_EQ(run.metric_sum("exact_match").weight, 0);
    }
    run.backward();
  }
  for (Section* section : chain.all()) {
    for (const float value : section->parameters().gradients()) ASSERT_EQ(value, 0);
  }
}

TEST_P(VisionLanguage, image_tokens_and_rows_that_do_not_match_are_refused_with_their_sample) {
  auto section = decoder(false);
  std::vector<float> visual(12 * 16);
  const auto error = [&](Batch& given, bool connected) -> std::string {
    MicroBatch run(bench, section, given, Pass::evaluate);
    const auto rows = static_cast<std::int64_t>(given.patch_positions.size());
    if (connected) run.connect("visual", Tensor(visual.data(), DType::f32, {rows, 16}));
    try {
      run.forward();
    } catch (const JobError& refused) {
      return refused.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(batch, true), "no error");
  EXPECT_EQ(error(batch, false).find("decoder: sample 0 has 8 image tokens, but its images have 0 rows"), 0u);
  batch.with_patches({8, 1, 3});  // as many patches in all, but not in each sample
  EXPECT_EQ(error(batch, true).find("decoder: sample 1 has 0 image tokens, but its images have 1 rows"), 0u);
}

TEST_P(VisionLanguage, exact_match_wants_every_target_of_a_sample) {
  auto section = decoder(false);
  randomise(section, 9);
  DecoderTrunk top(bench.context("decoder", false), {tiny_decoder(GetParam()), TeacherOutput::top_k, 1, {}});
  randomise(top, 9);
  Batch text = Batch::random(5, {32, 32, 31, 2}, 37);  // more targets than a logits block
  {
    MicroBatch best(bench, top, text, Pass::evaluate);
    best.forward();
    const auto indices = best.output("top_indices").span<std::int32_t>();
    std::ranges::copy(indices, text.targets.begin());
  }
  std::fill(text.targets.begin(), text.targets.begin() + 30, -1);  // sample 0: only the last two
  std::fill(text.targets.begin() + 95, text.targets.end(), -1);    // sample 3: none
  const auto match = [&] {
    MicroBatch run(bench, section, text, Pass::evaluate);
    return run.forward().metric_sum("exact_match");
  };
  EXPECT_EQ(match().sum, 3);
  EXPECT_EQ(match().weight, 3);
  text.targets[94] = (text.targets[94] + 1) % 37;  // sample 2's last target
  EXPECT_EQ(match().sum, 2);
  text.targets[30] = (text.targets[30] + 1) % 37;  // sample 0's first target
  EXPECT_EQ(match().sum, 1);
  text.targets[32] = (text.targets[32] + 1) % 37;  // the first row of sample 1
  EXPECT_EQ(match().sum, 0);
  EXPECT_EQ(match().weight, 3);
  MicroBatch training(bench, section, text);
  EXPECT_THROW((void)training.forward().metric_sum("exact_match"), std::out_of_range) << "in validation only";
}

/// A chain's sections, frozen, that answer with a prompt's likeliest tokens.
class Answering {
 public:
  explicit Answering(const Bench& bench, DecoderFamily family)
      : reader_(*bench.ops, {copy<VisionEncoder>(bench, "vision", {tiny_vision(PatchPositions::grid), {}}), DType::f32},
                {copy<Projector>(bench, "projector", {{16, 16, 0.02}, {}, {}}), DType::f32}),
        generation_(*bench.ops, copy<VisionLanguageDecoder>(bench, "decoder", {tiny_decoder(family), {}, {}}),
                    DType::f32) {}

  std::vector<std::int32_t> answer(const std::vector<std::int32_t>& prompt, const Pictures* pictures,
                                   const ContinuationLimits& limits) {
    ImageRows seen;
    const auto rows = std::ranges::count(prompt, image_token);
    if (pictures != nullptr) seen = reader_.read({pictures->pixel_tensor(), pictures->place_tensor(), rows});
    const Prompt asked[] = {{prompt, {seen.visual()}}};
    return complete(generation_, asked, limits, {}, 1).front().tokens;
  }

 private:
  /// Returns a section with the values that Chain gives it.
  template <class Type>
  static std::unique_ptr<Type> copy(const Bench& bench, const std::string& name,
                                    const typename Type::Options& options) {
    auto section = std::make_unique<Type>(bench.context(name, false), options);
    randomise(*section, 21);
    if (name == "projector") {
      for (float& value : section->parameters().values()) value *= 3;
      section->parameters().values_changed();
    }
    return section;
  }

  ImageReader reader_;
  Generation generation_;
};

TEST_P(VisionLanguage, an_answer_that_was_generated_matches_itself_exactly) {
  Chain chain(bench, GetParam(), PatchPositions::grid, false);
  Answering answering(bench, GetParam());
  const Pictures one = Pictures::random(6, {{{2, 2}}}, 2);
  const std::vector<std::int32_t> question = {5, -1, -1, -1, -1, 11, 30};
  const std::vector<std::int32_t> answer = answering.answer(question, &one, {6, {}});
  ASSERT_EQ(answer.size(), 6u);
  std::vector<std::int32_t> tokens = question, targets(question.size() - 1, -1);
  tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
  targets.insert(targets.end(), answer.begin(), answer.end());
  Batch told(tokens, targets, {0, static_cast<std::int32_t>(tokens.size())});
  told.with_patches({4});
  const Connect show = [&](MicroBatch& pass) { one.connect(pass); };
  EXPECT_EQ(evaluate(bench, chain, told, show, "exact_match"), 1);

  const Pictures other = Pictures::random(7, {{{2, 2}}}, 2);
  const Connect show_other = [&](MicroBatch& pass) { other.connect(pass); };
  EXPECT_NE(evaluate(bench, chain, told, show_other), evaluate(bench, chain, told, show)) << "it does look";
  EXPECT_EQ(answering.answer(question, &one, {6, {}}), answer) << "one prompt leaves nothing to the next";

  const auto end = std::find(answer.begin(), answer.end(), answer[3]);  // the first occurrence of this token
  const std::vector<std::int32_t> cut = answering.answer(question, &one, {6, {answer[3]}});
  EXPECT_TRUE(std::ranges::equal(cut, std::span(answer.begin(), end))) << "an end token is not part of the answer";
}

TEST_P(VisionLanguage, an_answer_ends_with_the_positions_and_a_prompt_that_does_not_fit_is_refused) {
  Answering answering(bench, GetParam());
  const std::vector<std::int32_t> question(30, 7), too_long(33, 7), nothing, seeing{5, -1, -1, -1, 7};
  EXPECT_EQ(answering.answer(question, nullptr, {10, {}}).size(), 3u) << "positions 30, 31, 32";
  EXPECT_THROW((void)answering.answer(too_long, nullptr, {}), JobError);
  EXPECT_THROW((void)answering.answer(nothing, nullptr, {}), JobError);
  EXPECT_THROW((void)answering.answer(seeing, nullptr, {}), JobError);
  const Pictures one = Pictures::random(6, {{{2, 2}}}, 2);
  EXPECT_THROW((void)answering.answer(seeing, &one, {}), JobError) << "3 image tokens, 4 rows";
}

INSTANTIATE_TEST_SUITE_P(families, VisionLanguage, ::testing::Values(DecoderFamily::gpt2, DecoderFamily::llama),
                         [](const auto& test) { return std::string(name_of(test.param)); });

class PromptInBlocks : public ::testing::TestWithParam<std::tuple<DecoderFamily, ImageMask>> {
 protected:
  Bench bench;
};

TEST_P(PromptInBlocks, has_the_answer_of_a_whole_one) {  // GN-1
  const auto& [family, mask] = GetParam();
  DecoderConfig config = tiny_decoder(family);
  config.positions = 600;
  config.image_mask = mask;
  const auto model = [&] {
    auto section = std::make_unique<VisionLanguageDecoder>(bench.context("decoder", false),
                                                           VisionLanguageDecoder::Options{config, {}, {}});
    randomise(*section, 9);
    return section;
  };
  std::vector<std::int32_t> tokens = Batch::random(5, {540}, 37).tokens;
  std::fill(tokens.begin() + 500, tokens.begin() + 524, image_token);  // on both sides of a block's end
  const OwnedTensor visual = random_tensor(3, 24, config.width);
  Generation generation(*bench.ops, model(), DType::f32);
  Batch asked(tokens, std::vector<std::int32_t>(tokens.size(), ignored_target), {0, 540});
  const std::vector<std::int32_t> of_prompt = marks_of(asked, {.mask = mask});
  std::vector<std::int32_t> targets(tokens.size() - 1, ignored_target), told = tokens;
  const Prompt prompt[] = {{tokens, {visual, of_prompt}}};
  const Completion answer = complete(generation, prompt, {5, {}}, {}, 1).front();
  for (const std::int32_t token : answer.tokens) {
    targets.push_back(token);
    told.push_back(token);
  }
  told.pop_back();
  Batch batch(told, targets, {0, static_cast<std::int32_t>(told.size())});
  batch.with_patches({24});
  const std::unique_ptr<VisionLanguageDecoder> whole = model();
  MicroBatch pass(bench, *whole, batch, Pass::evaluate);
  pass.connect("visual", visual);
  const std::vector<std::int32_t> marks = marks_of(batch, {.mask = mask});
  if (mask != ImageMask::causal) pass.connect("marks", mark_tensor(marks));
  EXPECT_EQ(pass.forward().metric_sum("exact_match").sum, 1);
}

INSTANTIATE_TEST_SUITE_P(masks, PromptInBlocks,
                         ::testing::Combine(::testing::Values(DecoderFamily::gpt2, DecoderFamily::llama),
                                            ::testing::Values(ImageMask::causal, ImageMask::images, ImageMask::prefix)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::to_string(static_cast<int>(std::get<1>(test.param)));
                         });

TEST(MarkedPrompt, without_its_marks_or_with_marks_that_do_not_fit_is_refused) {
  Bench bench;
  DecoderConfig config = tiny_decoder(DecoderFamily::llama);
  config.image_mask = ImageMask::images;
  Generation generation(*bench.ops,
                        std::make_unique<VisionLanguageDecoder>(bench.context("decoder", false),
                                                                VisionLanguageDecoder::Options{config, {}, {}}),
                        DType::f32);
  const std::vector<std::int32_t> prompt{5, image_token, image_token, 6};
  const OwnedTensor visual = random_tensor(3, 2, config.width);
  EXPECT_EQ(generation.refusal(prompt, {visual}), "the prompt's images lack their marks");
  const std::vector<std::int32_t> few(12, 1), none{};
  EXPECT_EQ(generation.refusal(prompt, {visual, few}), "the prompt's marks do not fit: 12 numbers for 4 tokens");
  std::vector<std::int32_t> marks{0, 0, 0, 1, 1, 1, 1, 3, 2, 2, 2, 3, 3, 3, 3, 4};
  EXPECT_EQ(generation.refusal(prompt, {visual, marks}), "");
  marks[11] = 2;
  EXPECT_EQ(generation.refusal(prompt, {visual, marks}),
            "the prompt's marks do not fit: row 2 of 4 sees 2 rows, and the row before it 3");
  EXPECT_EQ(generation.refusal(std::vector<std::int32_t>{5, 6}), "");
}

TEST(MarkedData, that_lack_marks_or_exceed_the_window_of_prefixes_are_refused_by_name) {
  const Bench bench;
  const auto refusal = [&](ImageMask mask, std::int64_t window, const DataShape& data) {
    DecoderConfig config = tiny_decoder(DecoderFamily::llama);
    config.image_mask = mask;
    config.window = window;
    try {
      const VisionLanguageDecoder made(bench.context("llm", false), VisionLanguageDecoder::Options{config, {}, data});
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  DataShape unmarked;
  unmarked.sequence = 20;
  unmarked.patch_columns = 12;
  DataShape marked = unmarked;
  marked.marks = true;
  EXPECT_EQ(refusal(ImageMask::causal, 0, unmarked), "accepted");
  EXPECT_EQ(refusal(ImageMask::images, 0, marked), "accepted");
  EXPECT_EQ(refusal(ImageMask::images, 0, {}), "accepted") << "texts have no images";
  EXPECT_EQ(refusal(ImageMask::images, 0, unmarked),
            "llm: the model's images need marks of positions, which the data do not have; prepare the data with the "
            "model's folder, as --model or data.processor");
  EXPECT_EQ(refusal(ImageMask::images, 8, marked), "accepted");
  EXPECT_EQ(refusal(ImageMask::prefix, 20, marked), "accepted");
  EXPECT_EQ(refusal(ImageMask::prefix, 8, marked),
            "llm: samples of 20 tokens may have a prefix beyond the window of 8 tokens, which is not supported; set "
            "data.sequence = 8 or less");
}

TEST(VisionLanguageCost, image_positions_pass_neither_the_output_layer_nor_the_end_of_the_last_layer) {  // VD-2
  const Bench bench;
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    const VisionLanguageDecoder decoder(bench.context("d", true), {tiny_decoder(family), {}, {}});
    const DecoderLm blind(bench.context("lm", true), {tiny_decoder(family), {}});
    const double whole = blind.cost({.tokens = 20}).flops;
    EXPECT_DOUBLE_EQ(decoder.cost({.tokens = 20}).flops, whole);
    const double ffn = (family == DecoderFamily::llama ? 3 : 2) * 24;
    const double saved = 2.0 * 8 * 16 * 37 + 2.0 * 8 * 16 * (16 + ffn);
    EXPECT_DOUBLE_EQ(decoder.cost({.tokens = 20, .patches = 8, .visual = 8, .images = 1}).flops, whole - saved);
  }
}

TEST(Projector, flops_count_both_products) {
  const Bench bench;
  const Projector projector(bench.context("projector", true), {{32, 24, 0.02}, {}, {}});
  EXPECT_DOUBLE_EQ(projector.cost({.tokens = 50, .patches = 10, .visual = 10, .images = 2}).flops,
                   2.0 * 10 * 24 * (32 + 24));
}

TEST(Projector, features_of_another_precision_are_converted_and_their_gradient_is_in_theirs) {
  Bench bench;
  Projector projector(bench.context("projector", true), {{16, 24, 0.02}, DType::bf16, {}});
  EXPECT_EQ(projector.ports().inputs[0].dtype, DType::bf16);
  EXPECT_EQ(projector.ports().outputs[0].dtype, DType::f32);
  std::vector<bfloat16> features(3 * 16, bfloat16(0.5f));
  std::vector<float> seed(3 * 24, 1.0f);
  Batch batch({0}, {0}, {0, 1});
  batch.with_patches({3});
  MicroBatch pass(bench, projector, batch);
  pass.connect("features", Tensor(features.data(), DType::bf16, {3, 16}), true);
  pass.forward();
  EXPECT_EQ(pass.output("visual").dtype(), DType::f32);
  pass.seed("visual", Tensor(seed.data(), DType::f32, {3, 24}));
  pass.backward();
  EXPECT_EQ(pass.input("features").gradient().dtype(), DType::bf16);
}

TEST(Projector, a_frozen_one_passes_the_gradient_on) {
  Bench bench;
  std::vector<float> features(3 * 16), seed(3 * 24, 1.0f);
  for (std::size_t i = 0; i < features.size(); ++i) features[i] = static_cast<float>(i % 5) - 2;
  Batch batch({0}, {0}, {0, 1});
  batch.with_patches({3});
  const auto gradient = [&](bool trained) {
    SectionContext context = bench.context("projector", trained);
    context.passes_gradient = !trained;
    Projector projector(context, {{16, 24, 0.02}, {}, {}});
    if (!trained) projector.freeze();
    MicroBatch pass(bench, projector, batch);
    pass.connect("features", Tensor(features.data(), DType::f32, {3, 16}), true);
    pass.forward();
    pass.seed("visual", Tensor(seed.data(), DType::f32, {3, 24}));
    pass.backward();
    const auto values = pass.input("features").gradient().span<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(gradient(false), gradient(true));
}

}  // namespace
}  // namespace maestro::testing
