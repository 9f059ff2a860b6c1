// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/bench_training.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"

namespace maestro::bench {

namespace {

/// Completes a tiny model of a family whose layers have further blocks.
DecoderConfig with_blocks(DecoderConfig config) {
  const DecoderFamily family = config.family;
  config.head_size = 16;  // the smallest of attention on devices
  if (has_experts(family)) {
    config.experts.count = 8;
    config.experts.ffn = 32;
    if (has_shared_expert(family)) config.experts.shared_ffn = 32;
  }
  if (has_latent_attention(family)) {
    config.head_size = 24;
    config.latent = {.rank = 32, .query_rank = 40, .rope_size = 8, .value_size = 16};
  }
  if (has_delta_rules(family)) {
    config.delta = {.key_heads = 2, .value_heads = 4, .key_size = 16, .value_size = 16};
    config.norm_epsilon = 0.01;  // norms of a rule's small results amplify roundings
  }
  config = with_family(resolved(config), family);
  if (has_delta_rules(family)) set_mixers(config, {{.kind = MixerKind::delta}, {}});
  if (has_convolutions(family)) set_mixers(config, {{.kind = MixerKind::convolution}, {}});
  return resolved(config);
}

}  // namespace

DecoderConfig decoder_of(const std::string& model) {
  std::map<std::string, DecoderConfig> models;
  const auto add = [&models](const char* name, DecoderFamily family, std::array<std::int64_t, 7> shape, bool tied) {
    DecoderConfig config;
    config.family = family;
    config.layers = shape[0];
    config.width = shape[1];
    config.heads = shape[2];
    config.kv_heads = shape[3];
    config.ffn = shape[4];
    config.vocabulary = shape[5];
    config.positions = shape[6];
    config.tied = tied;
    const bool plain = family == DecoderFamily::gpt2 || family == DecoderFamily::llama;
    models.emplace(name, plain ? resolved(config) : with_blocks(config));
  };
  add("gpt2-124m", DecoderFamily::gpt2, {12, 768, 12, 12, 3072, 50257, 1024}, true);
  add("llama-1b", DecoderFamily::llama, {22, 2048, 32, 4, 5632, 32000, 2048}, false);
  add("gpt2-tiny", DecoderFamily::gpt2, {2, 64, 4, 4, 256, 503, 128}, true);
  add("llama-tiny", DecoderFamily::llama, {2, 64, 4, 2, 128, 500, 128}, false);
  add("experts-tiny", DecoderFamily::qwen2_moe, {2, 64, 4, 2, 32, 500, 128}, false);
  add("sinks-tiny", DecoderFamily::gpt_oss, {2, 64, 4, 2, 32, 500, 128}, false);
  add("delta-tiny", DecoderFamily::qwen3_5_text, {2, 64, 4, 2, 128, 500, 128}, false);
  add("latent-tiny", DecoderFamily::deepseek_v3, {2, 64, 4, 4, 128, 500, 128}, false);
  add("convolution-tiny", DecoderFamily::lfm2, {2, 64, 4, 2, 128, 500, 128}, true);
  const auto found = models.find(model);
  if (found != models.end()) return found->second;
  std::string names;
  for (const auto& [name, config] : models) names += " " + name;
  throw JobError("there is no model '" + model + "'; there are:" + names);
}

RandomBatch::RandomBatch(const TrainingSettings& settings, std::int64_t vocabulary, std::uint32_t index) {
  Random random(1, index);
  const std::int64_t samples = settings.batch / settings.micro_batches;
  for (std::int64_t at = 0; at < samples * settings.sequence; ++at) {
    tokens_.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  }
  targets_.assign(tokens_.begin() + 1, tokens_.end());
  targets_.push_back(-1);
  plan_.index = index;
  plan_.step_tokens = settings.batch * settings.sequence;
  plan_.loss_scale = 1.0 / static_cast<double>(plan_.step_tokens);
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    plan_.samples.push_back({SampleId(static_cast<std::uint64_t>(index * samples + sample)), settings.sequence});
  }
}

std::vector<PortTensor> RandomBatch::inputs() {
  return {{"tokens", Tensor(tokens_.data(), DType::i32, {rows(), 1}), false},
          {"targets", Tensor(targets_.data(), DType::i32, {rows(), 1}), false}};
}

Training::Training(const TrainingSettings& settings, BenchDevice& device) : settings_(settings), device_(device) {
  DecoderLm::Options options;
  options.decoder = decoder_of(settings.model);
  make_batches(options.decoder);
  device_.run([&] {
    const SectionContext context = context_of("model", device_, true);
    runner_ = runner_of(std::make_shared<DecoderLm>(context, options), context);
  });
}

Training::Training(const TrainingSettings& settings, BenchDevice& student, BenchDevice& teacher)
    : settings_(settings), device_(student), teacher_device_(&teacher) {
  DistilledDecoder::Options options;
  options.decoder = decoder_of(settings.model);
  options.teachers[0].decoder = decoder_of(settings.model);
  options.teachers[0].decoder.width *= 2;
  options.teachers[0].decoder.head_size *= 2;
  options.teachers[0].decoder.tied = false;
  options.teachers[0].decoder.init_std = 0.1;  // large enough for peaked teacher distributions
  options.teachers[0].precision = settings.dtype();
  make_batches(options.decoder);
  make_teacher(options.teachers[0].decoder);
  device_.run([&] {
    const SectionContext context = context_of("model", device_, true);
    runner_ = runner_of(std::make_shared<DistilledDecoder>(context, options), context);
  });
}

Training::~Training() {
  device_.run([this] { runner_.reset(); });
  if (teacher_device_ == nullptr) return;
  teacher_device_->run([this] {
    teacher_.reset();
    hidden_.reset();
  });
}

void Training::make_batches(const DecoderConfig& decoder) {
  for (std::uint32_t index = 0; index < settings_.micro_batches; ++index) {
    batches_.emplace_back(settings_, decoder.vocabulary, index);
  }
  flops_ =
      3 * static_cast<double>(settings_.batch) *
      (body_flops(decoder, settings_.sequence) + head_flops(settings_.sequence, decoder.width, decoder.vocabulary));
}

void Training::make_teacher(const DecoderConfig& decoder) {
  teacher_device_->run([&] {
    const SectionContext context = context_of("teacher", *teacher_device_, false);
    DecoderTrunk::Options options;
    options.decoder = decoder;
    auto trunk = std::make_shared<DecoderTrunk>(context, options);
    trunk->freeze();
    teacher_ = runner_of(std::move(trunk), context);
    const Shape shape{batches_.front().rows(), decoder.width};
    hidden_ = SpaceMemory(context.memory(), Tensor(nullptr, settings_.dtype(), shape).bytes());
    hidden_tensor_ = Tensor(hidden_.data(), settings_.dtype(), shape);
  });
}

SectionContext Training::context_of(const std::string& name, BenchDevice& device, bool trained) const {
  SectionContext context;
  context.name = name;
  context.precision = settings_.dtype();
  context.trained = trained;
  context.ops = &device.ops();
  return context;
}

std::unique_ptr<SectionRunner> Training::runner_of(std::shared_ptr<Section> section, const SectionContext& context) {
  OptimizerConfig optimizer;
  optimizer.lr = settings_.lr;
  optimizer.clip_norm = settings_.clip;
  optimizer.schedule = LearningRateSchedule::constant;
  if (context.trained) parameters_ = section->parameters().elements();
  return std::make_unique<SectionRunner>(std::move(section), context, optimizer, settings_.steps);
}

void Training::run(const std::function<void(std::int64_t step)>& after) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  for (std::int64_t step = 1; step <= settings_.steps; ++step) {
    one_step(static_cast<std::uint64_t>(step));
    const Clock::time_point end = Clock::now();
    if (step > 1) step_ms_.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    begin = end;
    if (after) after(step);
  }
  device_.run([this] { update(); });
}

/// Runs the previous step's optimizer, then this step's passes.
void Training::one_step(std::uint64_t number) {
  std::vector<PassMetrics> metrics;
  PendingSum squares;
  for (RandomBatch& batch : batches_) {
    const bool last = &batch == &batches_.back();
    if (teacher_device_ == nullptr && !last) continue;  // without a teacher all micro-batches are queued at once
    if (teacher_device_ != nullptr) teach(batch, number);
    device_.run([&] {
      update();
      for (RandomBatch& each : batches_) {
        if (teacher_device_ != nullptr && &each != &batch) continue;
        metrics.push_back(runner_->forward(each.plan(number), inputs_of(each), {}));
        runner_->backward(each.plan(number), {}, {});
      }
      if (last) squares = runner_->gradient_sum_of_squares();
    });
  }
  norm_ = std::sqrt(squares.get());
  due_ = number;
  double sum = 0;
  double weight = 0;
  for (const PassMetrics& pass : metrics) {
    for (const MetricSum& metric : pass.get()) {
      if (metric.name != "loss") continue;
      sum += metric.sum;
      weight += metric.weight;
    }
  }
  losses_.push_back(sum / weight);
}

std::vector<PortTensor> Training::inputs_of(RandomBatch& batch) const {
  std::vector<PortTensor> inputs = batch.inputs();
  if (teacher_device_ != nullptr) inputs.push_back({"teacher_hidden", hidden_tensor_, false, MemoryKind::device});
  return inputs;
}

/// Fills hidden_; the student's device may read it after the return.
void Training::teach(RandomBatch& batch, std::uint64_t number) {
  const std::vector<PortTensor> given{batch.inputs().front()};
  const std::vector<PortTensor> wanted{{"hidden", hidden_tensor_, false, MemoryKind::device}};
  teacher_device_->run([&] { static_cast<void>(teacher_->forward(batch.plan(number), given, wanted)); });
}

void Training::update() {
  if (due_ == 0) return;
  const Result<OptimizerStep> stepped = runner_->step(StepId(due_), norm_, 1);
  if (!stepped) throw JobError(stepped.error());
  due_ = 0;
}

}  // namespace maestro::bench
