// SPDX-License-Identifier: Apache-2.0
// Runs a rank of a section replica on its device: micro-batches forward and backward, the optimizer, snapshots.
// Independent of actors, so a section can also be trained without actors (tests, GPU checks).
//
// All calls come from the device's thread.
//
// RU-2 (own tapes): every micro-batch in flight has a separate tape and arena; both are reused.
// RU-3 (gradient order): gradients accumulate in the order of the backward calls.
// RU-4 (equal ranks): ranks that hold the same parameter hold bitwise the same gradient of it after add_over_ranks()
//       and after spread_to_parts().
// RU-5 (asynchronous): nothing waits for the device: the results of a call are ready when Device::finish() reports it,
//       and its arguments stay valid until then.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/arena.hpp"
#include "runtime/ops/tape.hpp"
#include "runtime/schedule/step_plan.hpp"
#include "sections/optimizer.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Memory of a port's tensor: the host's, the section's device's, or (inputs) another device's, if the section's
/// operator table can upload from it.
enum class MemoryKind : std::uint8_t { host, device, peer_device };

/// A tensor at a port. For outputs, memory the value is copied to.
struct PortTensor {
  std::string port;
  Tensor tensor;
  bool differentiable = false;  ///< inputs: a gradient is wanted back
  MemoryKind memory = MemoryKind::host;
  SourceSet sources = {};  ///< inputs: whose samples have rows
};

class SectionRunner {
 public:
  /// Only runners of replicas of a frozen, shareable() section may share it.
  SectionRunner(std::shared_ptr<Section> section, const SectionContext& context, const OptimizerConfig& optimizer,
                AdamWOptimizer::Span span);
  virtual ~SectionRunner();
  SectionRunner(const SectionRunner&) = delete;
  SectionRunner& operator=(const SectionRunner&) = delete;

  [[nodiscard]] Section& section() { return *section_; }
  [[nodiscard]] const std::shared_ptr<Section>& shared_section() const { return section_; }
  [[nodiscard]] const SectionContext& context() const { return context_; }
  /// Returns the bytes that its arenas hold (Arena::held_bytes), one for each micro-batch that was in flight at once.
  [[nodiscard]] std::size_t working_bytes() const;
  /// Returns the gradients that replicas add up at the end of a step.
  [[nodiscard]] virtual std::span<float> gradients() { return section_->parameters().gradients(); }
  /// Returns the parameter whose gradient the first and the last stage add up; null: they share none.
  [[nodiscard]] virtual const Parameter* tied() { return section_->tied(); }

  /// Runs the forward pass and copies the output ports named in `outputs`. A section that is trained or passes
  /// gradients on keeps the micro-batch for backward() when its pass is train.
  virtual PassMetrics forward(const MicroBatchPlan& plan, std::span<const PortTensor> inputs,
                              std::span<const PortTensor> outputs);
  /// Runs the backward pass of a kept micro-batch: `output_gradients` came from downstream, `input_gradients` is memory
  /// for the gradients that go upstream (zero where nothing flowed back).
  virtual void backward(const MicroBatchPlan& plan, std::span<const PortTensor> output_gradients,
                        std::span<const PortTensor> input_gradients);

  /// Completes the step's gradients within the replica, after a section has fetched them (Section::fetches_gradients):
  /// sums each over the ranks that hold it (EM-2, sum over holders). A collective of all ranks.
  virtual void add_over_ranks();
  /// Copies all gradients of the first context part to the other parts. A collective of all ranks.
  virtual void spread_to_parts();
  /// Returns this rank's share; the shares of all ranks and pipeline stages of a section's replica add up to the
  /// section's sum, with the same bits whatever the context. The first stage counts parameters that both end stages
  /// hold (Section::tied). Each replica with sharded optimizer state counts the range that it keeps.
  [[nodiscard]] virtual PendingSum gradient_sum_of_squares() const;
  /// Returns the part of the same sum that the rows of tables have.
  [[nodiscard]] double row_sum_of_squares() const;
  /// Clips by `norm` (the section's, or all sections together) and steps the optimizer. Replicas with sharded optimizer
  /// state have then offered the new values of the kept range (Parameters::stage_shard). `tokens`: the section's in the
  /// step; more than UpdateRule::most_counted are refused if a parameter counts.
  virtual Result<OptimizerStep> step(StepId step, double norm, std::int64_t tokens);
  /// Returns figures of the values that a step has set, on the first rank: loads of experts (load_figures).
  [[nodiscard]] PassMetrics step_figures() const;

 private:
  struct MicroBatch;  // tape, arena and layout of a micro-batch
  using Key = std::pair<std::uint64_t, std::uint32_t>;
  enum class PassKind : std::uint8_t { forward_kept, forward_only, backward };
  std::unique_ptr<MicroBatch> take(const MicroBatchPlan& plan);
  /// Makes the calls of a section's pass, which may be replayed (OperatorTable::repeat).
  void repeat(PassKind kind, const std::function<void()>& calls) const;
  [[nodiscard]] std::vector<std::span<float>> counted_gradients() const;

  /// Throws std::logic_error unless the outputs are declared ports, each set once, and a trained section has a loss or
  /// an output that gradients come back to.
  void check_results(const Outputs& results, bool trains) const;

  bool outputs_checked_ = false;  // outputs of the first pass are numbers
  SectionContext context_;
  std::shared_ptr<Section> section_;
  Ports ports_;
  AdamWOptimizer optimizer_;
  std::vector<std::unique_ptr<MicroBatch>> free_;
  std::map<Key, std::unique_ptr<MicroBatch>> in_flight_;
};

}  // namespace maestro
