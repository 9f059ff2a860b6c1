// SPDX-License-Identifier: Apache-2.0
// Shared by section tests: packed batches, micro-batches that run a section on the CPU backend, gradient checks.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/ops/operator_table.hpp"
#include "sections/optimizer.hpp"
#include "sections/section.hpp"

namespace maestro::testing {

inline constexpr std::int64_t vocabulary = 37;  ///< default vocabulary of tests; no degree divides it
inline constexpr double loss_tolerance = 1e-6;  ///< relative tolerance for sums over ranks or stages

/// Samples packed without padding.
struct Batch {
  std::vector<std::int32_t> tokens, targets, offsets, positions;
  std::vector<std::int32_t> patch_offsets, patch_positions;    ///< patches; empty without images
  std::vector<std::int32_t> visual_offsets, visual_positions;  ///< empty: as patches
  std::vector<std::int32_t> heard_offsets, heard_positions;    ///< rows of sounds next to images; empty: none
  std::vector<SampleId> samples;

  Batch(std::vector<std::int32_t> packed_tokens, std::vector<std::int32_t> packed_targets,
        std::vector<std::int32_t> sample_offsets);
  /// Returns random tokens and targets below `ids`; every seventh target is ignored.
  static Batch random(std::uint64_t seed, const std::vector<std::int32_t>& lengths, std::int64_t ids);
  Batch& with_patches(const std::vector<std::int32_t>& counts);
  Batch& with_visual(const std::vector<std::int32_t>& counts);
  [[nodiscard]] SequenceLayout layout() const { return {offsets, positions}; }
  [[nodiscard]] SequenceLayout patches() const { return {patch_offsets, patch_positions}; }
  [[nodiscard]] SequenceLayout visual() const {
    return visual_offsets.empty() ? patches() : SequenceLayout{visual_offsets, visual_positions};
  }
  [[nodiscard]] SequenceLayout layout_of(Axis axis) const {
    return axis == Axis::tokens ? layout() : axis == Axis::patches ? patches() : visual();
  }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] double target_tokens() const;
};

struct Bench {
  Bench();
  [[nodiscard]] SectionContext context(std::string name, bool trained, DType precision = DType::f32) const;

  std::unique_ptr<OperatorTable> ops;
  Arena arena;
};

/// A micro-batch of a section; loss and gradients are means over the batch's targets.
class MicroBatch {
 public:
  MicroBatch(Bench& bench, Section& section, const Batch& batch, Pass pass = Pass::train, DType precision = DType::f32);
  void connect(const std::string& port, const Tensor& value, bool differentiable = false);
  /// Sets which samples have rows in a chosen port.
  void take(const std::string& port, std::vector<bool> taken) { inputs_.set_taken(port, std::move(taken)); }
  MicroBatch& forward();
  void backward() { tape_.backward(); }
  void seed(const std::string& port, const Tensor& gradient) { tape_.seed(*outputs_.find(port), gradient); }

  /// Returns sum divided by weight, or the two values.
  [[nodiscard]] double metric(const std::string& name) const;
  [[nodiscard]] MetricSum metric_sum(const std::string& name) const;
  [[nodiscard]] const Tensor& output(const std::string& port) const { return outputs_.find(port)->value(); }
  [[nodiscard]] const Var& input(const std::string& port) const { return inputs_[port]; }
  [[nodiscard]] const Inputs& inputs() const { return inputs_; }
  [[nodiscard]] Tape& tape() { return tape_; }

 private:
  Section* section_;
  const Batch* batch_;
  Tape tape_;  // before the Vars below, which must not outlive it
  Inputs inputs_;
  Outputs outputs_;
};

/// Returns the mean of `metric` over the targets in a forward-only pass; `connect` may add inputs.
using Connect = std::function<void(MicroBatch&)>;
double evaluate(Bench& bench, Section& section, const Batch& batch, const Connect& connect = {},
                const std::string& metric = "loss");
/// Zeroes the gradients and runs forward and backward. Returns the loss.
double differentiate(Bench& bench, Section& section, const Batch& batch, const Connect& connect = {});

/// Compares each parameter's gradient with central differences of the loss along two directions: the gradient, where
/// the slope must be the gradient's norm, and a random one.
void expect_gradients_match_differences(Bench& bench, Section& section, const Batch& batch,
                                        const Connect& connect = {});

/// Fills the values with normal deviates large enough that every term matters to the loss.
void randomise(Section& section, std::uint64_t seed);

/// Computes the norm, clips by the section's norm, and runs step `number`. Fails if the norm is not finite.
Result<OptimizerStep> clipped_step(const AdamWOptimizer& optimizer, Bench& bench, Section& section,
                                   std::int64_t number);

/// Returns the largest absolute difference between two f32 tensors of equal shape.
double largest_difference(const ConstTensor& a, const ConstTensor& b);

std::filesystem::path reference_folder(const std::string& model);
/// Returns the recorded decoders, at least one of every family.
std::vector<std::string> recorded_decoders();
std::vector<std::int32_t> integers(const SafetensorsFile& file, const std::string& name);
/// A temporary folder for a test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace maestro::testing
