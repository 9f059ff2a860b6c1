// Trains one decoder on random tokens, without actors, and prints one JSON object: times of steps, memory, losses.
//
// A step is forward, backward, norm of the gradient, clipping, AdamW. The host waits once in a step, for the norm, and
// queues the optimizer and the next forward pass behind it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/gpu/bench_device.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/section_runner.hpp"

namespace maestro::bench {
namespace {

struct Settings {
  std::string device = "cuda:0";
  std::string model = "gpt2-124m";
  std::string precision = "bf16";
  std::int64_t batch = 32;  ///< sequences of a step
  std::int64_t sequence = 1024;
  std::int64_t micro_batches = 1;  ///< that a step is cut into
  std::int64_t steps = 20;         ///< timed
  std::int64_t warmup = 5;
  double clip = 1.0;
};

constexpr const char* usage =
    "usage: train_bench [--device cuda:0|cpu] [--model NAME] [--precision bf16|fp32] [--batch N] [--sequence N]\n"
    "                   [--micro-batches N] [--steps N] [--warmup N] [--clip NORM]\n";

/// GPT-2 small (Radford et al. 2019), TinyLlama 1.1B (Zhang et al. 2024), and small ones of both kinds for trials.
DecoderConfig config_of(const std::string& model) {
  std::map<std::string, DecoderConfig> models;
  const auto add = [&models](const char* name, const char* family, std::array<std::int64_t, 7> shape, bool tied) {
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
    models.emplace(name, resolved(config));
  };
  add("gpt2-124m", "gpt2", {12, 768, 12, 12, 3072, 50257, 1024}, true);
  add("llama-1b", "llama", {22, 2048, 32, 4, 5632, 32000, 2048}, false);
  add("gpt2-tiny", "gpt2", {2, 64, 4, 4, 256, 503, 128}, true);
  add("llama-tiny", "llama", {2, 64, 4, 2, 128, 500, 128}, false);
  const auto found = models.find(model);
  if (found != models.end()) return found->second;
  std::string names;
  for (const auto& [name, config] : models) names += " " + name;
  throw JobError("there is no model '" + model + "'; there are:" + names);
}

Settings read(int count, char** words) {
  Settings settings;
  const std::map<std::string, std::string*> texts{
      {"--device", &settings.device}, {"--model", &settings.model}, {"--precision", &settings.precision}};
  const std::map<std::string, std::int64_t*> numbers{{"--batch", &settings.batch},
                                                     {"--sequence", &settings.sequence},
                                                     {"--micro-batches", &settings.micro_batches},
                                                     {"--steps", &settings.steps},
                                                     {"--warmup", &settings.warmup}};
  for (int at = 1; at < count; at += 2) {
    const std::string name = words[at];
    if (at + 1 == count) throw JobError(name + " needs a value\n" + usage);
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = words[at + 1];
    } else if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::max(1LL, std::atoll(words[at + 1]));
    } else if (name == "--clip") {
      settings.clip = std::atof(words[at + 1]);
    } else {
      throw JobError("there is no " + name + "\n" + usage);
    }
  }
  if (settings.batch % settings.micro_batches != 0) throw JobError("--micro-batches divides --batch");
  return settings;
}

/// Random tokens, and the token behind each as its target.
struct MicroBatchData {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  MicroBatchPlan plan;

  MicroBatchData(const Settings& settings, std::int64_t vocabulary, std::uint32_t index) {
    Random random(1, index);
    const std::int64_t samples = settings.batch / settings.micro_batches;
    for (std::int64_t at = 0; at < samples * settings.sequence; ++at) {
      tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    }
    targets.assign(tokens.begin() + 1, tokens.end());
    targets.push_back(-1);
    plan.index = index;
    plan.loss_scale = 1.0 / static_cast<double>(settings.batch * settings.sequence);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      plan.samples.push_back({SampleId(static_cast<std::uint64_t>(index * samples + sample)), settings.sequence});
    }
  }
  [[nodiscard]] std::vector<PortTensor> inputs() {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    return {{"tokens", Tensor(tokens.data(), DType::i32, {rows, 1}), false},
            {"targets", Tensor(targets.data(), DType::i32, {rows, 1}), false}};
  }
};

class Training {
 public:
  Training(const Settings& settings, BenchDevice& device) : settings_(settings), device_(device) {
    DecoderLm::Options options;
    options.decoder = config_of(settings.model);
    for (std::uint32_t index = 0; index < settings.micro_batches; ++index) {
      data_.emplace_back(settings, options.decoder.vocabulary, index);
    }
    device_.run([&] { runner_ = runner_of(options); });
    flops_ = 3 * static_cast<double>(settings.batch) *
             (body_flops(options.decoder, settings.sequence) +
              head_flops(settings.sequence, options.decoder.width, options.decoder.vocabulary));
  }
  ~Training() {
    device_.run([this] { runner_.reset(); });
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void run() {
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin;
    for (std::int64_t step = 1; step <= settings_.warmup + settings_.steps; ++step) {
      one_step(static_cast<std::uint64_t>(step));
      const Clock::time_point end = Clock::now();
      if (step > settings_.warmup) times_ms_.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
      begin = end;
    }
    device_.run([this] { update(); });
  }
  [[nodiscard]] nlohmann::json report() {
    std::ranges::sort(times_ms_);
    const double median = times_ms_[times_ms_.size() / 2];
    const double mean = std::reduce(times_ms_.begin(), times_ms_.end()) / static_cast<double>(times_ms_.size());
    const double tokens = static_cast<double>(settings_.batch * settings_.sequence);
    return {{"program", "maestro"},
            {"model", settings_.model},
            {"device", settings_.device},
            {"precision", settings_.precision},
            {"batch", settings_.batch},
            {"sequence", settings_.sequence},
            {"micro_batches", settings_.micro_batches},
            {"parameters", runner_->section().parameters().elements()},
            {"step_ms", mean},
            {"step_ms_median", median},
            {"step_ms_all", times_ms_},
            {"tokens_per_s", 1000 * tokens / mean},
            {"flops_per_step", flops_},
            {"memory_mib", device_.memory_mib()},
            {"losses", losses_}};
  }

 private:
  [[nodiscard]] std::unique_ptr<SectionRunner> runner_of(const DecoderLm::Options& options) {
    SectionContext context;
    context.name = "model";
    context.precision = settings_.precision == "bf16" ? DType::bf16 : DType::f32;
    context.trained = true;
    context.ops = &device_.ops();
    OptimizerConfig optimizer;
    optimizer.clip_norm = settings_.clip;
    optimizer.schedule = "constant";
    return std::make_unique<SectionRunner>(std::make_shared<DecoderLm>(context, options), context, optimizer,
                                           settings_.warmup + settings_.steps);
  }
  /// The optimizer of the step before, then the passes of this one.
  void one_step(std::uint64_t number) {
    std::vector<PassMetrics> metrics;
    PendingSum squares;
    device_.run([&] {
      update();
      for (MicroBatchData& batch : data_) {
        batch.plan.step = StepId(number);
        metrics.push_back(runner_->forward(batch.plan, batch.inputs(), {}));
        runner_->backward(batch.plan, {}, {});
      }
      squares = runner_->gradient_sum_of_squares();
    });
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
  void update() {
    if (due_ == 0) return;
    const Result<OptimizerStep> stepped = runner_->step(StepId(due_), norm_);
    if (!stepped) throw JobError(stepped.error());
    due_ = 0;
  }

  const Settings& settings_;
  BenchDevice& device_;
  std::vector<MicroBatchData> data_;
  std::unique_ptr<SectionRunner> runner_;
  double flops_ = 0;
  double norm_ = 0;
  std::uint64_t due_ = 0;  // the step whose optimizer has not run
  std::vector<double> times_ms_;
  std::vector<double> losses_;
};

}  // namespace
}  // namespace maestro::bench

int main(int count, char** words) {
  try {
    const maestro::bench::Settings settings = maestro::bench::read(count, words);
    maestro::bench::BenchDevice device(settings.device);
    maestro::bench::Training training(settings, device);
    training.run();
    std::cout << training.report().dump() << '\n';
    return 0;
  } catch (const std::exception& failed) {
    std::cerr << "train_bench: " << failed.what() << '\n';
    return 1;
  }
}
