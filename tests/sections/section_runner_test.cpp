// SPDX-License-Identifier: Apache-2.0
#include "sections/section_runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "tests/sections/section_bench.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

DecoderConfig tiny() {
  DecoderConfig config;
  config.layers = 1;
  config.width = 16;
  config.heads = 2;
  config.vocabulary = 20;
  config.positions = 12;
  return config;
}

OptimizerConfig constant_rate(double lr, double clip_norm) {
  OptimizerConfig config;
  config.lr = lr;
  config.schedule = LearningRateSchedule::constant;
  config.weight_decay = 0;
  config.clip_norm = clip_norm;
  return config;
}

MicroBatchPlan plan_of(const Batch& batch, std::uint32_t index = 0, Pass pass = Pass::train) {
  MicroBatchPlan plan;
  plan.step = StepId(1);
  plan.index = index;
  plan.pass = pass;
  plan.loss_scale = 1.0 / batch.target_tokens();
  for (std::size_t at = 0; at < batch.samples.size(); ++at) {
    plan.samples.push_back({batch.samples[at], batch.offsets[at + 1] - batch.offsets[at]});
  }
  return plan;
}

std::vector<PortTensor> inputs_of(Batch& batch) {
  return {{"tokens", Tensor(batch.tokens.data(), DType::i32, {batch.rows(), 1}), false},
          {"targets", Tensor(batch.targets.data(), DType::i32, {batch.rows(), 1}), false}};
}

template <class Made>
std::unique_ptr<SectionRunner> runner_of(const Bench& bench, const OptimizerConfig& optimizer, bool trained = true) {
  const SectionContext context = bench.context("lm", trained);
  typename Made::Options options;
  options.decoder = tiny();
  auto section = std::make_unique<Made>(context, options);
  randomise(*section, 9);
  return std::make_unique<SectionRunner>(std::move(section), context, optimizer, 100);
}

double loss_of(const std::vector<MetricSum>& metrics) {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [](const auto& m) { return m.name == "loss"; });
  return found == metrics.end() ? std::nan("") : found->sum / found->weight;
}

std::vector<float> gradient_of(SectionRunner& runner) {
  const auto flat = runner.section().parameters().gradients();
  return {flat.begin(), flat.end()};
}

TEST(SectionRunner, training_a_tiny_model_reduces_its_loss) {
  const Bench bench;
  auto runner = runner_of<DecoderLm>(bench, constant_rate(3e-3, 1.0));
  Batch batch = Batch::random(5, {9, 4, 12}, 20);
  std::vector<double> losses;
  for (std::uint64_t step = 1; step <= 30; ++step) {
    MicroBatchPlan plan = plan_of(batch);
    plan.step = StepId(step);
    losses.push_back(loss_of(runner->forward(plan, inputs_of(batch), {})));
    runner->backward(plan, {}, {});
    const double norm = std::sqrt(runner->gradient_sum_of_squares());
    ASSERT_GT(norm, 0);
    const auto stepped = runner->step(StepId(step), norm, 1);
    ASSERT_TRUE(stepped) << stepped.error().message;
    EXPECT_EQ(stepped->lr, 3e-3);
    EXPECT_EQ(runner->gradient_sum_of_squares(), 0) << "a step leaves the gradient at zero";
  }
  // 25 tokens, memorized with 1,500 parameters.
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

TEST(SectionRunner, micro_batches_in_flight_do_not_disturb_each_other) {  // RU-2, RU-3, SE-1
  const Bench bench;
  Batch one = Batch::random(1, {7, 3}, 20);
  Batch two = Batch::random(2, {5, 12}, 20);
  auto apart = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0));
  auto together = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0));
  for (int turn = 0; turn < 2; ++turn) {  // the second time with used tapes and arenas
    (void)apart->forward(plan_of(one, 0), inputs_of(one), {});
    apart->backward(plan_of(one, 0), {}, {});
    (void)apart->forward(plan_of(two, 1), inputs_of(two), {});
    apart->backward(plan_of(two, 1), {}, {});
    (void)together->forward(plan_of(one, 0), inputs_of(one), {});
    (void)together->forward(plan_of(two, 1), inputs_of(two), {});
    together->backward(plan_of(one, 0), {}, {});
    together->backward(plan_of(two, 1), {}, {});
    EXPECT_GT(apart->gradient_sum_of_squares(), 0);
    // A loss adds its share of the tied embedding's gradient in the forward pass, so the order of additions differs by
    // a rounding: 2^-24 of sums below 4.
    const std::vector<float> wanted = gradient_of(*apart);
    const std::vector<float> found = gradient_of(*together);
    for (std::size_t at = 0; at < wanted.size(); ++at) ASSERT_NEAR(found[at], wanted[at], 1e-6) << at;
  }
}

TEST(SectionRunner, an_evaluated_or_frozen_micro_batch_is_not_kept) {
  const Bench bench;
  Batch batch = Batch::random(1, {7, 3}, 20);
  auto runner = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0));
  const MicroBatchPlan evaluated = plan_of(batch, 0, Pass::evaluate);
  const double evaluated_loss = loss_of(runner->forward(evaluated, inputs_of(batch), {}));
  EXPECT_THROW(runner->backward(evaluated, {}, {}), std::logic_error);
  EXPECT_EQ(runner->gradient_sum_of_squares(), 0);
  EXPECT_NEAR(loss_of(runner->forward(plan_of(batch), inputs_of(batch), {})), evaluated_loss, 1e-5);
  runner->backward(plan_of(batch), {}, {});
  EXPECT_THROW(runner->backward(plan_of(batch), {}, {}), std::logic_error) << "a micro-batch goes backward once";
  auto frozen = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0), false);
  (void)frozen->forward(plan_of(batch), inputs_of(batch), {});
  EXPECT_THROW(frozen->backward(plan_of(batch), {}, {}), std::logic_error);
}

TEST(SectionRunner, outputs_are_copied_and_gradients_from_downstream_are_seeded) {
  const Bench bench;
  Batch batch = Batch::random(1, {7, 3}, 20);
  auto runner = runner_of<DecoderTrunk>(bench, constant_rate(1e-3, 0));
  std::vector<float> hidden(static_cast<std::size_t>(batch.rows()) * 16, std::nanf(""));
  const std::vector<PortTensor> outputs{{"hidden", Tensor(hidden.data(), DType::f32, {batch.rows(), 16}), false}};
  const std::vector<PortTensor> inputs{inputs_of(batch).front()};
  (void)runner->forward(plan_of(batch), inputs, outputs);
  EXPECT_TRUE(std::all_of(hidden.begin(), hidden.end(), [](float value) { return std::isfinite(value); }));
  std::vector<float> ones(hidden.size(), 1.0f);
  runner->backward(plan_of(batch),
                   std::vector<PortTensor>{{"hidden", Tensor(ones.data(), DType::f32, {batch.rows(), 16}), false}}, {});
  const std::vector<float> once = gradient_of(*runner);
  ASSERT_GT(runner->gradient_sum_of_squares(), 0);
  std::fill(ones.begin(), ones.end(), 2.0f);  // backward is linear in the seed; doubling is exact
  (void)runner->forward(plan_of(batch), inputs, outputs);
  std::ranges::fill(runner->section().parameters().gradients(), 0.0f);
  runner->backward(plan_of(batch),
                   std::vector<PortTensor>{{"hidden", Tensor(ones.data(), DType::f32, {batch.rows(), 16}), false}}, {});
  const std::vector<float> twice = gradient_of(*runner);
  for (std::size_t at = 0; at < once.size(); ++at) ASSERT_EQ(twice[at], 2 * once[at]) << at;
}

/// Has an input that gets no contribution to its gradient.
class UnusedInput final : public Section {
 public:
  [[nodiscard]] Ports ports() const override { return {{{"in", DType::f32, 2, true, false}}, {}}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& /*tape*/, const Inputs& /*inputs*/, Outputs& outputs) override { outputs.metric("loss", 0, 1); }
  [[nodiscard]] Cost cost(const SampleShape& /*sample*/) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
};

TEST(SectionRunner, the_gradient_of_an_input_that_took_no_part_is_zero) {
  const Bench bench;
  SectionRunner runner(std::make_shared<UnusedInput>(), bench.context("unused", true), constant_rate(1e-3, 0), 100);
  MicroBatchPlan plan;
  plan.samples = {{SampleId(0), 3}};
  std::vector<float> in(6, 1.0f);
  std::vector<float> gradient(6, std::nanf(""));
  (void)runner.forward(plan, std::vector<PortTensor>{{"in", Tensor(in.data(), DType::f32, {3, 2}), true}}, {});
  runner.backward(plan, {}, std::vector<PortTensor>{{"in", Tensor(gradient.data(), DType::f32, {3, 2}), true}});
  EXPECT_EQ(gradient, std::vector<float>(6, 0.0f));
}

TEST(SectionRunner, an_output_the_section_does_not_give_or_of_another_size_is_a_bug_that_is_named) {
  const Bench bench;
  Batch batch = Batch::random(1, {7, 3}, 20);
  auto runner = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0));
  float value = 0;
  const std::vector<PortTensor> outputs{{"hidden", Tensor(&value, DType::f32, {1, 1}), false}};
  EXPECT_THROW((void)runner->forward(plan_of(batch), inputs_of(batch), outputs), std::logic_error);
}

/// A section of one weight whose forward pass a test gives.
class Given final : public Section {
 public:
  using Forward = std::function<void(Tape&, const Inputs&, Outputs&, Parameter&)>;
  Given(const SectionContext& context, std::vector<Port> outputs, Forward forward)
      : outputs_(std::move(outputs)), forward_(std::move(forward)) {
    weight_ = &parameters_.add({"weight", Shape{4, 4}, true, [](std::span<float> to) { std::ranges::fill(to, 1.0F); }});
    context.allocate(parameters_);
  }
  [[nodiscard]] Ports ports() const override { return {{}, outputs_}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    forward_(tape, inputs, outputs, *weight_);
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  std::vector<Port> outputs_;
  Forward forward_;
  Parameters parameters_;
  Parameter* weight_ = nullptr;
};

/// Returns the message of a training pass of `forward`, whose section declares the output "hidden" (M, 4) if
/// `declares`.
std::string message_of(bool declares, Given::Forward forward) {
  const Bench bench;
  const SectionContext context = bench.context("given", true);
  std::vector<Port> ports;
  if (declares) ports.push_back({.name = "hidden", .dtype = DType::f32, .columns = 4, .differentiable = true});
  SectionRunner runner(std::make_unique<Given>(context, ports, std::move(forward)), context, constant_rate(1e-3, 0),
                       10);
  Batch batch = Batch::random(1, {7, 3}, 20);
  std::vector<float> sent(40);
  std::vector<PortTensor> outputs;
  if (declares) outputs.push_back({"hidden", Tensor(sent.data(), DType::f32, {10, 4}), true});
  try {
    (void)runner.forward(plan_of(batch), {}, outputs);
    return "accepted";
  } catch (const std::logic_error& problem) {
    return problem.what();
  }
}

TEST(SectionRunner, an_undeclared_output_is_refused_with_the_nearest_port) {
  EXPECT_EQ(message_of(true,
                       [](Tape& tape, const Inputs&, Outputs& outputs, Parameter&) {
                         outputs.set("hiden", tape.output({10, 4}, DType::f32, true));
                       }),
            "output 'hiden' is set, but is not declared in ports(); the nearest is 'hidden'");
  EXPECT_EQ(message_of(true,
                       [](Tape& tape, const Inputs&, Outputs& outputs, Parameter&) {
                         for (int twice = 0; twice < 2; ++twice)
                           outputs.set("hidden", tape.output({10, 4}, DType::f32, true));
                       }),
            "output 'hidden' is set twice in a pass");
}

TEST(SectionRunner, an_output_of_as_many_elements_and_another_shape_is_refused) {
  EXPECT_EQ(message_of(true,
                       [](Tape& tape, const Inputs&, Outputs& outputs, Parameter&) {
                         outputs.set("hidden", tape.output({20, 2}, DType::f32, true));
                       }),
            "output port 'hidden' gave fp32 (20, 2), its edge carries fp32 (10, 4)");
}

TEST(SectionRunner, a_trained_section_without_a_loss_and_outputs_is_refused) {
  EXPECT_TRUE(
      message_of(false, [](Tape&, const Inputs&, Outputs&, Parameter&) {}).starts_with("the section is trained"));
  EXPECT_TRUE(message_of(false, [](Tape&, const Inputs&, Outputs& outputs, Parameter&) {
                outputs.metric("accuracy", 1, 1);
              }).starts_with("the section is trained"));
  EXPECT_EQ(message_of(false, [](Tape&, const Inputs&, Outputs& outputs, Parameter&) { outputs.metric("loss", 1, 1); }),
            "accepted");
}

TEST(SectionRunner, a_norm_above_the_limit_scales_the_step_and_one_that_is_not_finite_is_an_error) {
  const Bench bench;
  Batch batch = Batch::random(1, {7, 3}, 20);
  auto runner = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0.5));
  (void)runner->forward(plan_of(batch), inputs_of(batch), {});
  runner->backward(plan_of(batch), {}, {});
  EXPECT_FALSE(runner->step(StepId(1), std::nan(""), 1));
  const std::vector<float> gradient = gradient_of(*runner);
  const auto moments = runner->section().parameters().first_moments().span<float>();
  ASSERT_TRUE(runner->step(StepId(1), 8.0, 1));  // for example the norm of all sections
  const double factor = 0.5 / 8.0;
  for (std::size_t at = 0; at < gradient.size(); ++at) {
    const double wanted = 0.1 * factor * gradient[at];  // (1 - beta1) of the clipped gradient
    ASSERT_NEAR(moments[at], wanted, 1e-6 * std::abs(wanted) + 1e-12);
  }
}

TEST(SectionRunner, replicas_that_share_moments_count_and_step_a_range_each) {
  const Bench bench;
  Batch batch = Batch::random(1, {7, 3}, 20);
  for (const std::size_t replicas : {2U, 3U, 4U}) {
    auto whole = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0.5));
    (void)whole->forward(plan_of(batch), inputs_of(batch), {});
    whole->backward(plan_of(batch), {}, {});
    const double wanted = whole->gradient_sum_of_squares();
    ASSERT_TRUE(whole->step(StepId(1), 8.0, 1));
    const std::span<float> values = whole->section().parameters().values();
    double sum = 0;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      auto runner = runner_of<DecoderLm>(bench, constant_rate(1e-3, 0.5));
      Parameters& parameters = runner->section().parameters();
      const ShardRange own = shard_range(parameters.gradients().size(), replicas, replica);
      parameters.shard_optimizer_state(own);
      (void)runner->forward(plan_of(batch), inputs_of(batch), {});
      runner->backward(plan_of(batch), {}, {});
      sum += runner->gradient_sum_of_squares();
      ASSERT_TRUE(runner->step(StepId(1), 8.0, 1));
      EXPECT_TRUE(std::ranges::equal(parameters.gradients().subspan(own.first, own.count),
                                     values.subspan(own.first, own.count)))
          << "new values are offered to the others";
    }
    EXPECT_NEAR(sum, wanted, 1e-12 * wanted) << "f64 sums in another order";
  }
}

TEST(SectionRunner, what_the_first_stage_counts_of_a_tied_parameter_no_replica_of_the_last_counts_again) {
  const Bench bench;
  for (const std::size_t replicas : {1U, 3U}) {
    double counted = 0;
    double expected = 0;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      SectionContext context = bench.context("lm", true);
      context.stage = {1, 2, 1, 1};
      DecoderLm::Options options;
      options.decoder = tiny();
      options.decoder.layers = 2;
      SectionRunner runner(std::make_unique<DecoderLm>(context, options), context, constant_rate(1e-3, 0), 100);
      Parameters& parameters = runner.section().parameters();
      const std::span<float> gradients = parameters.gradients();
      if (replicas > 1) parameters.shard_optimizer_state(shard_range(gradients.size(), replicas, replica));
      std::ranges::fill(gradients, 1.0f);
      ASSERT_NE(runner.section().tied(), nullptr);
      expected = static_cast<double>(gradients.size()) -
                 static_cast<double>(runner.section().tied()->gradient().span<float>().size());
      counted += runner.gradient_sum_of_squares();
    }
    EXPECT_EQ(counted, expected) << replicas;
  }
}

/// Vision, projector and decoder, each with a separate runner; all values are random.
struct RunnersThatSee {
  RunnersThatSee(const Bench& bench, bool decoder_trained) {
    const SectionContext eye = bench.context("vision", true), link = bench.context("projector", true);
    SectionContext words = bench.context("decoder", decoder_trained);
    words.passes_gradient = !decoder_trained;
    vision = runner(
        std::make_unique<VisionEncoder>(eye, VisionEncoder::Options{tiny_vision(PatchPositions::learned), {}}), eye);
    projector = runner(std::make_unique<Projector>(link, Projector::Options{{16, 16, 0.02}, {}, {}}), link);
    decoder = runner(std::make_unique<VisionLanguageDecoder>(
                         words, VisionLanguageDecoder::Options{tiny_decoder(DecoderFamily::gpt2), {}, {}}),
                     words);
    if (!decoder_trained) decoder->section().freeze();
  }
  static std::unique_ptr<SectionRunner> runner(std::unique_ptr<Section> section, const SectionContext& context) {
    randomise(*section, 9);
    return std::make_unique<SectionRunner>(std::move(section), context, constant_rate(1e-3, 0), 100);
  }
  std::unique_ptr<SectionRunner> vision, projector, decoder;
};

/// Returns the vision section's gradient after a step with only the samples that have images.
std::vector<float> vision_gradient(const Bench& bench, bool decoder_trained) {
  RunnersThatSee runners(bench, decoder_trained);
  const Pictures pictures = Pictures::random(4, {{{2, 3}, {1, 2}}, {}, {{2, 2}}}, 2);
  Batch batch = illustrated(pictures, 7, 37);
  MicroBatchPlan all = plan_of(batch);
  for (std::size_t at = 0; at < all.samples.size(); ++at) {
    all.samples[at].patches = all.samples[at].visual = pictures.counts[at];
    all.samples[at].images = pictures.counts[at] > 0 ? 1 : 0;
  }
  MicroBatchPlan seeing = all;
  std::erase_if(seeing.samples, [](const SampleRef& sample) { return sample.patches == 0; });
  std::vector<float> features(12 * 16), visual(12 * 16), dvisual(12 * 16), dfeatures(12 * 16);
  const auto port = [](const char* name, std::vector<float>& values) {
    return PortTensor{name, Tensor(values.data(), DType::f32, {12, 16}), true};
  };
  const std::vector<PortTensor> shown{{"pixels", pictures.pixel_tensor(), false},
                                      {"places", pictures.place_tensor(), false}};
  std::vector<PortTensor> told = inputs_of(batch);
  told.push_back(port("visual", visual));
  const auto one = [](PortTensor tensor) { return std::vector<PortTensor>{std::move(tensor)}; };
  (void)runners.vision->forward(seeing, shown, one(port("features", features)));
  (void)runners.projector->forward(seeing, one(port("features", features)), one(port("visual", visual)));
  EXPECT_GT(loss_of(runners.decoder->forward(all, told, {})), 0);
  runners.decoder->backward(all, {}, one(port("visual", dvisual)));
  runners.projector->backward(seeing, one(port("visual", dvisual)), one(port("features", dfeatures)));
  runners.vision->backward(seeing, one(port("features", dfeatures)), {});
  EXPECT_GT(runners.vision->gradient_sum_of_squares(), 0);
  return gradient_of(*runners.vision);
}

TEST(SectionRunner, a_vision_section_learns_through_a_frozen_decoder_what_it_learns_through_a_trained_one) {
  const Bench bench;
  EXPECT_EQ(vision_gradient(bench, false), vision_gradient(bench, true));
}

}  // namespace
}  // namespace maestro::testing
