// SPDX-License-Identifier: Apache-2.0
// Decoders against Hugging Face transformers and PyTorch, as recorded by record_references.py.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/optimizer.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

class DecoderReference : public ::testing::TestWithParam<std::string> {
 protected:
  DecoderReference()
      : folder(reference_folder(GetParam())),
        expected(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()),
        config(read_hf_config(folder).value_or_throw()) {
    if (config.experts.count > 0) config.experts.balance = LoadBalance::none;  // the recorded steps have none
  }

  [[nodiscard]] Batch batch() const {
    return {integers(expected, "tokens"), integers(expected, "targets"), integers(expected, "offsets")};
  }
  /// Returns batch `index` of the recorded training, B samples of T tokens.
  [[nodiscard]] Batch training_batch(std::int64_t index) const {
    const ConstTensor all = expected.tensor("train.tokens").value_or_throw();
    constexpr std::int64_t samples = 3;
    const std::int64_t length = all.columns() - 1;
    std::vector<std::int32_t> tokens, targets, offsets{0};
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int32_t* row = all.data<std::int32_t>() + (index * samples + sample) * all.columns();
      tokens.insert(tokens.end(), row, row + length);
      targets.insert(targets.end(), row + 1, row + 1 + length);
      offsets.push_back(static_cast<std::int32_t>(tokens.size()));
    }
    return {tokens, targets, offsets};
  }
  [[nodiscard]] float recorded(const std::string& name, std::int64_t index = 0) const {
    return expected.tensor(name).value_or_throw().data<float>()[index];
  }

  Bench bench;
  std::filesystem::path folder;
  SafetensorsFile expected;
  DecoderConfig config;
};

TEST_P(DecoderReference, loss_is_that_of_transformers) {
  DecoderLm model(bench.context("lm", false), {config, {}});
  load_weights(model, folder).or_throw();
  // Both sides compute in fp32; only the order of sums with some hundred terms differs.
  EXPECT_NEAR(evaluate(bench, model, batch()), recorded("loss"), 1e-5);
}

TEST_P(DecoderReference, logits_are_those_of_transformers) {
  DecoderTrunk trunk(bench.context("teacher", false), {config, TeacherOutput::logits, 1, {}});
  load_weights(trunk, folder).or_throw();
  const Batch samples = batch();
  MicroBatch pass(bench, trunk, samples, Pass::evaluate);
  pass.forward();
  EXPECT_LT(largest_difference(pass.output("logits"), expected.tensor("logits").value_or_throw()), 2e-5);
}

TEST_P(DecoderReference, gradients_are_those_of_pytorch_tied_uses_added_up) {
  DecoderLm model(bench.context("lm", true), {config, {}});
  load_weights(model, folder).or_throw();
  differentiate(bench, model, batch());
  const auto gradients = export_tensors(model, ParameterBuffer::gradients, "gradient.");
  ASSERT_TRUE(gradients.ok());
  for (const NamedTensor& gradient : gradients->tensors) {
    EXPECT_LT(largest_difference(gradient.tensor, expected.tensor(gradient.name).value_or_throw()), 5e-6)
        << gradient.name;
  }
}

TEST_P(DecoderReference, weights_written_again_equal_those_read) {
  DecoderLm model(bench.context("lm", true), {config, {}});
  load_weights(model, folder).or_throw();
  const TemporaryFolder out;
  save_weights(model, out.path() / "weights").or_throw();
  const auto theirs = SafetensorsFile::open(folder / "model.safetensors").value_or_throw();
  const auto ours = SafetensorsFile::open(out.path() / "weights/model.safetensors").value_or_throw();
  EXPECT_EQ(ours.names(), theirs.names());
  for (const std::string& name : theirs.names()) {
    const ConstTensor a = ours.tensor(name).value_or_throw(), b = theirs.tensor(name).value_or_throw();
    EXPECT_EQ(a.shape(), b.shape()) << name;
    EXPECT_EQ(largest_difference(a, b), 0) << name;
  }
  DecoderLm again(bench.context("other", true), {config, {}});
  load_weights(again, out.path() / "weights").or_throw();
  EXPECT_TRUE(std::ranges::equal(again.parameters().values(), model.parameters().values()));
}

TEST_P(DecoderReference, adamw_steps_track_those_of_pytorch) {
  DecoderLm model(bench.context("lm", true), {config, {}});
  load_weights(model, folder).or_throw();
  OptimizerConfig settings;
  settings.lr = 5e-3;
  settings.min_lr = 5e-4;
  settings.warmup_steps = 5;
  const AdamWOptimizer optimizer(settings, 50);
  const std::int64_t steps = expected.tensor("train.loss").value_or_throw().elements();
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double loss = differentiate(bench, model, training_batch((step - 1) % 4));
    const auto done = clipped_step(optimizer, bench, model, step);
    ASSERT_TRUE(done.ok());
    // Later steps amplify rounding differences of the first step, here to about 1e-5.
    EXPECT_NEAR(loss, recorded("train.loss", step - 1), 1e-4) << step;
    // A gradient differs more than a loss, and with the build's order of sums: 4e-4 without optimisation.
    EXPECT_NEAR(done->norm, recorded("train.norm", step - 1), 1e-3 * std::max(1.0, done->norm)) << step;
    EXPECT_NEAR(done->lr, recorded("train.lr", step - 1), 1e-9) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(models, DecoderReference, ::testing::ValuesIn(recorded_decoders()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace maestro::testing
