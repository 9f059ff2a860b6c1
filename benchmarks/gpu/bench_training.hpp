// SPDX-License-Identifier: Apache-2.0
// Training of sections on devices without actors: benchmarks time it, and GPU tests compare it with a CPU.
//
// A step is forward, backward, gradient norm, clipping, AdamW. The host waits once in a step, for the norm, and then
// queues the optimizer and the next forward pass.
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

/// Returns GPT-2 small (Radford et al. 2019), TinyLlama 1.1B (Zhang et al. 2024), or a small model of either kind for
/// trials, by the names gpt2-124m, llama-1b, gpt2-tiny, llama-tiny; or a small model with other blocks: experts-tiny
/// (Qwen2-MoE), sinks-tiny (gpt-oss: experts with biases, attention with sinks), delta-tiny (Qwen3.5: a gated delta
/// rule and gated attention), latent-tiny (DeepSeek-V3: latent attention, experts chosen by sigmoids), convolution-tiny
/// (LFM2). Throws JobError for other names.
[[nodiscard]] DecoderConfig decoder_of(const std::string& model);

struct TrainingSettings {
  std::string model = "gpt2-124m";
  std::string precision = "bf16";  ///< or fp32
  std::int64_t batch = 32;         ///< sequences per step
  std::int64_t sequence = 1024;
  std::int64_t micro_batches = 1;  ///< micro-batches per step; divides batch
  std::int64_t steps = 25;
  double clip = 1.0;
  double lr = 3e-4;
  [[nodiscard]] DType dtype() const { return precision == "bf16" ? DType::bf16 : DType::f32; }
};

/// Random tokens, the same in every step; a token's target is the next token.
class RandomBatch {
 public:
  RandomBatch(const TrainingSettings& settings, std::int64_t vocabulary, std::uint32_t index);
  /// Returns tokens and targets in host memory.
  [[nodiscard]] std::vector<PortTensor> inputs();
  [[nodiscard]] const MicroBatchPlan& plan(std::uint64_t step) { return plan_.step = StepId(step), plan_; }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
  MicroBatchPlan plan_;
};

/// A trained section on a device and, for distillation, a frozen teacher on another device.
class Training {
 public:
  /// Makes a decoder that learns the batch by heart. The device must outlive the training.
  Training(const TrainingSettings& settings, BenchDevice& device);
  /// Makes the decoder of `settings` and a random teacher of the other family and size. The decoder's loss is its
  /// divergence from the teacher, whose hidden states it reads in the teacher's device memory. Devices may share a GPU.
  Training(const TrainingSettings& settings, BenchDevice& student, BenchDevice& teacher);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Runs all steps, once. Calls `after` after each step with the step's number, from 1.
  void run(const std::function<void(std::int64_t step)>& after = {});
  /// Returns the mean loss of each step.
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }
  /// Returns the time of each step but the first.
  [[nodiscard]] const std::vector<double>& step_ms() const { return step_ms_; }
  [[nodiscard]] std::int64_t parameters() const { return parameters_; }
  /// Returns the FLOPs of forward and backward, by body_flops() and head_flops(), without the teacher's.
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
  SpaceMemory hidden_;  // the teacher's output for a single micro-batch
  Tensor hidden_tensor_;
  std::int64_t parameters_ = 0;
  double flops_ = 0;
  double norm_ = 0;
  std::uint64_t due_ = 0;  // the step whose optimizer has not run
  std::vector<double> step_ms_;
  std::vector<double> losses_;
};

}  // namespace maestro::bench
