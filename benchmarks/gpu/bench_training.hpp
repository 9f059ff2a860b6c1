// SPDX-License-Identifier: Apache-2.0
// Training of sections on devices without actors: timed by benchmarks, and compared with a CPU by GPU tests.
//
// A step is forward, backward, norm of the gradient, clipping, AdamW. The host waits once in a step, for the norm, and
// queues the optimizer and the next forward pass behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/gpu/bench_device.hpp"
#include "runtime/model/decoder_config.hpp"
#include "sections/section_runner.hpp"

namespace maestro::bench {

/// GPT-2 small (Radford et al. 2019), TinyLlama 1.1B (Zhang et al. 2024), and small models of both kinds for trials:
/// gpt2-124m, llama-1b, gpt2-tiny, llama-tiny. Throws JobError for others.
[[nodiscard]] DecoderConfig decoder_of(const std::string& model);

struct TrainingSettings {
  std::string model = "gpt2-124m";
  std::string precision = "bf16";  ///< or fp32
  std::int64_t batch = 32;         ///< sequences of a step
  std::int64_t sequence = 1024;
  std::int64_t micro_batches = 1;  ///< that a step is cut into; divides batch
  std::int64_t steps = 25;
  double clip = 1.0;
  double lr = 3e-4;
  [[nodiscard]] DType dtype() const { return precision == "bf16" ? DType::bf16 : DType::f32; }
};

/// Random tokens, the same in every step, and the token behind each as its target.
class RandomBatch {
 public:
  RandomBatch(const TrainingSettings& settings, std::int64_t vocabulary, std::uint32_t index);
  /// Of tokens and targets, in memory of the host.
  [[nodiscard]] std::vector<PortTensor> inputs();
  [[nodiscard]] const MicroBatchPlan& plan(std::uint64_t step) { return plan_.step = StepId(step), plan_; }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
  MicroBatchPlan plan_;
};

/// A trained section on a device, and, for distillation, a frozen teacher on another device.
class Training {
 public:
  /// A decoder that learns the batch by heart. The device outlives the training.
  Training(const TrainingSettings& settings, BenchDevice& device);
  /// The decoder of `settings` with the divergence from a teacher of the other family and size, which is random, too;
  /// the two meet in the teacher's hidden states, in memory of its device. Devices may share a GPU.
  Training(const TrainingSettings& settings, BenchDevice& student, BenchDevice& teacher);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// All steps, once; calls `after` behind each, with its number from 1.
  void run(const std::function<void(std::int64_t step)>& after = {});
  /// Mean loss of each step.
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }
  /// Of each step but the first.
  [[nodiscard]] const std::vector<double>& step_ms() const { return step_ms_; }
  [[nodiscard]] std::int64_t parameters() const { return parameters_; }
  /// Of forward and backward, by body_flops() and head_flops(); the student's alone.
  [[nodiscard]] double flops_per_step() const { return flops_; }

 private:
  void make_batches(const DecoderConfig& decoder);
  void make_teacher(const DecoderConfig& decoder);
  [[nodiscard]] SectionContext context_of(const std::string& name, BenchDevice& device, bool trained) const;
  [[nodiscard]] std::unique_ptr<SectionRunner> runner_of(std::shared_ptr<Section> section,
                                                         const SectionContext& context);
  void one_step(std::uint64_t number);
  [[nodiscard]] std::vector<PortTensor> inputs_of(RandomBatch& batch) const;
  void teach(RandomBatch& batch, std::uint64_t number);
  void update();

  TrainingSettings settings_;
  BenchDevice& device_;
  BenchDevice* teacher_device_ = nullptr;
  std::vector<RandomBatch> batches_;
  std::unique_ptr<SectionRunner> runner_;
  std::unique_ptr<SectionRunner> teacher_;
  SpaceMemory hidden_;  // output of the teacher, for a single micro-batch
  Tensor hidden_tensor_;
  std::int64_t parameters_ = 0;
  double flops_ = 0;
  double norm_ = 0;
  std::uint64_t due_ = 0;  // the step whose optimizer has not run
  std::vector<double> step_ms_;
  std::vector<double> losses_;
};

}  // namespace maestro::bench
