// SPDX-License-Identifier: Apache-2.0
// Passes that are replayed as graphs must train a section to the same bits as issued passes, with fewer calls from the
// host. Uses the fake, which counts calls.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/gpu/bench_training.hpp"
#include "runtime/core/random.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/cuda/cuda_tables.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"

namespace maestro::bench {
namespace {

/// Two sections on device 0 that do not know of each other.
class Devices {
 public:
  explicit Devices(GraphUse graphs) : first(open(graphs)), second(open(graphs)) {}

 private:
  [[nodiscard]] std::unique_ptr<Device> open(GraphUse graphs) {
    DeviceOptions options;
    options.name = "cuda:0";
    options.graphs = graphs;
    options.log = [this](const std::string& line) { said.push_back(line); };
    return std::make_unique<cuda::CudaDevice>(options, poller_, parts_, cuda::cuda_tables());
  }
  cuda::Poller poller_;
  cuda::DeviceParts parts_{0, cuda::GreenContextCalls{}};

 public:
  std::vector<std::string> said;  ///< notes on attention without cuDNN, and on work that could not be recorded
  BenchDevice first;
  BenchDevice second;
};

struct Trained {
  std::vector<double> losses;
  std::vector<std::size_t> queued;  ///< queued calls by step, without the first step
  std::vector<std::string> said;
};

Trained trained(GraphUse graphs, const TrainingSettings& settings, bool distils) {
  Devices devices(graphs);
  std::unique_ptr<Training> training = distils ? std::make_unique<Training>(settings, devices.first, devices.second)
                                               : std::make_unique<Training>(settings, devices.first);
  Trained result;
  std::size_t before = 0;
  training->run([&](std::int64_t step) {
    const std::size_t now = fake_cuda::queued();
    if (step > 1) result.queued.push_back(now - before);
    before = now;
  });
  result.losses = training->losses();
  for (const std::string& line : devices.said) {
    if (line.find("graph") != std::string::npos) result.said.push_back(line);
  }
  return result;
}

void expect_alike_and_fewer(const TrainingSettings& settings, bool distils) {
  const Trained issued = trained(GraphUse::never, settings, distils);
  const Trained replayed = trained(GraphUse::always, settings, distils);
  EXPECT_EQ(issued.losses, replayed.losses);
  EXPECT_TRUE(replayed.said.empty()) << replayed.said.front();
  EXPECT_EQ(issued.queued.front(), issued.queued.back());
  EXPECT_LT(4 * replayed.queued.back(), issued.queued.back()) << "calls of a step";
}

TrainingSettings settings_of(const char* model, const char* precision) {
  TrainingSettings settings;
  settings.model = model;
  settings.precision = precision;
  settings.batch = 2;
  settings.sequence = 9;
  settings.micro_batches = 2;
  settings.steps = 4;
  settings.lr = 1e-3;
  return settings;
}

TEST(RepeatedPasses, of_a_language_model_train_it_to_the_same_bits_with_fewer_calls) {
  for (const char* model :
       {"gpt2-tiny", "llama-tiny", "experts-tiny", "sinks-tiny", "delta-tiny", "latent-tiny", "convolution-tiny"}) {
    for (const char* precision : {"bf16", "fp32"}) {
      SCOPED_TRACE(std::string(model) + " " + precision);
      expect_alike_and_fewer(settings_of(model, precision), false);
    }
  }
}

TEST(RepeatedPasses, of_a_teacher_and_a_student_on_one_device_distil_to_the_same_bits_with_fewer_calls) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    SCOPED_TRACE(model);
    expect_alike_and_fewer(settings_of(model, "bf16"), true);
  }
}

struct Text {
  Text(const std::vector<std::int64_t>& lengths, std::uint32_t index) {
    Random random(7, index);
    plan.index = index;
    for (const std::int64_t length : lengths) {
      plan.samples.push_back({SampleId(index * 16 + plan.samples.size()), length});
      for (std::int64_t at = 0; at < length; ++at) tokens.push_back(static_cast<std::int32_t>(random.below(500)));
    }
    targets = tokens;
    plan.loss_scale = 1.0 / static_cast<double>(tokens.size());
  }
  [[nodiscard]] std::vector<PortTensor> inputs() {
    const Shape shape{static_cast<std::int64_t>(tokens.size()), 1};
    return {{"tokens", Tensor(tokens.data(), DType::i32, shape), false},
            {"targets", Tensor(targets.data(), DType::i32, shape), false}};
  }
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  MicroBatchPlan plan;
};

/// Result of a few steps over texts with several shapes, two in flight, with an evaluation after each step.
struct Left {
  std::vector<double> losses;
  std::vector<std::byte> values;
};

class ManyShapes {
 public:
  explicit ManyShapes(GraphUse graphs) : devices_(graphs) {
    BenchDevice& device = devices_.first;
    device.run([&] {
      SectionContext context;
      context.name = "model";
      context.precision = DType::bf16;
      context.trained = true;
      context.ops = &device.ops();
      DecoderLm::Options options;
      options.decoder = decoder_of("llama-tiny");
      OptimizerConfig optimizer;
      optimizer.lr = 1e-2;
      runner_ = std::make_unique<SectionRunner>(std::make_shared<DecoderLm>(context, options), context, optimizer, 9);
    });
  }
  ~ManyShapes() {
    devices_.first.run([this] { runner_.reset(); });
  }
  ManyShapes(const ManyShapes&) = delete;
  ManyShapes& operator=(const ManyShapes&) = delete;

  [[nodiscard]] Left run() {
    Left left;
    for (std::uint64_t step = 1; step <= steps; ++step) one_step(StepId(step), left.losses);
    Parameters& parameters = runner_->section().parameters();
    const auto values = std::as_bytes(parameters.values());
    left.values.resize(values.size());
    devices_.first.run([&] { parameters.memory().read(left.values.data(), values.data(), values.size()); });
    return left;
  }
  [[nodiscard]] const std::vector<std::string>& said() const { return devices_.said; }

 private:
  static constexpr std::uint64_t steps = 4;

  void one_step(StepId step, std::vector<double>& losses) {
    std::vector<PassMetrics> metrics;
    PendingSum squares;
    devices_.first.run([&] {
      for (std::size_t first = 0; first < texts_.size(); first += 2) pair(step, first, metrics);
      Text& last = texts_.back();
      last.plan.pass = Pass::evaluate;
      metrics.push_back(runner_->forward(last.plan, last.inputs(), {}));
      last.plan.pass = Pass::train;
      squares = runner_->gradient_sum_of_squares();
    });
    devices_.first.run([&] { EXPECT_TRUE(runner_->step(step, std::sqrt(squares.get()), 1)); });
    for (const PassMetrics& pass : metrics) {
      for (const MetricSum& metric : pass.get()) losses.push_back(metric.sum);
    }
  }
  /// Trains two micro-batches that are in flight at once.
  void pair(StepId step, std::size_t first, std::vector<PassMetrics>& metrics) {
    for (std::size_t at = first; at < first + 2; ++at) {
      texts_[at].plan.step = step;
      metrics.push_back(runner_->forward(texts_[at].plan, texts_[at].inputs(), {}));
    }
    for (std::size_t at = first; at < first + 2; ++at) runner_->backward(texts_[at].plan, {}, {});
  }

  Devices devices_;
  std::unique_ptr<SectionRunner> runner_;
  std::vector<Text> texts_ = {{{9, 4}, 0}, {{7}, 1}, {{7}, 2}, {{4, 9}, 3}};
};

TEST(RepeatedPasses, of_several_shapes_and_in_flight_at_once_leave_the_same_bits) {  // PS-2, RT-1
  const Left issued = ManyShapes(GraphUse::never).run();
  const Left replayed = ManyShapes(GraphUse::always).run();
  const Left chosen = ManyShapes(GraphUse::where_they_pay).run();
  EXPECT_EQ(issued.losses, replayed.losses);
  EXPECT_EQ(issued.values, replayed.values);
  EXPECT_EQ(issued.losses, chosen.losses);
  EXPECT_EQ(issued.values, chosen.values);
  EXPECT_NE(issued.losses.front(), issued.losses.back());
}

}  // namespace
}  // namespace maestro::bench
