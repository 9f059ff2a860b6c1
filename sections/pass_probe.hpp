// SPDX-License-Identifier: Apache-2.0
// Runs passes of a single section rank, without actors, and observes their calls: on a device, to time them, or with
// nothing computed (a dry pass), which yields the calls and the memory of a section of any size.
//
// DY-1 (same calls): a dry pass makes the calls, in order, that the section makes on a CPU, or on a GPU after the first
//       pass, which also rounds the weights.
// DY-2 (same memory): a dry section's parameters and arenas have the same sizes as on the device.
// DY-3 (times of the device): if calls return before their work is complete, a call's time is the time between the
//       marks before and after it, including the device's wait for the next call; their sum is the time of the pass.
// DY-4 (complete passes): a pass of a section that does not run dry (Section::runs_dry) is a single call in either
//       direction, with the FLOPs of Section::cost and the time of the pass; a dry pass runs nothing of the section,
//       and takes the bytes of Section::cost.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/collective/observed_group.hpp"
#include "runtime/device/device.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/ops/dry_space.hpp"
#include "runtime/ops/observed_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

struct ObservedCall {
  OperatorCall call;
  double ms = 0;  ///< 0 in a dry pass
};

/// A micro-batch's forward pass and, if it has one, its backward pass.
struct ObservedPasses {
  std::vector<ObservedCall> forward;
  std::vector<ObservedCall> backward;
  std::vector<ObservedCall> packs;  ///< packs of weights, by the first pass after a step
  double forward_ms = 0;            ///< time without packs; 0 in a dry pass
  double backward_ms = 0;
  bool whole = false;  ///< DY-4
};

/// The end of a trained section's step, without exchanges with other replicas.
struct ObservedStepEnd {
  std::vector<ObservedCall> add_ranks;
  std::vector<ObservedCall> norm;
  std::vector<ObservedCall> step;
};

/// A section of a job, for a probe.
struct ProbedSection {
  const SectionGraph* graph = nullptr;  ///< outlives the probe
  SectionId section;
  SectionFactory factory;
  SectionContext context;  ///< without place, table and groups
  OptimizerConfig optimizer;
  bool zero = false;          ///< replica 0 keeps its shard of the optimizer state
  ReplicaIndex replica = {};  ///< the replica whose layout the probe has
  /// The section on the meta device, for DY-4; null: the section runs dry.
  std::shared_ptr<const Section> described = {};
  /// Fills the value (M, columns) of a source's port for a micro-batch's samples.
  std::function<void(const std::string& port, const MicroBatchPlan& batch, const Tensor& value)> read;
};

/// Place of the passes; with null table, dry.
struct ProbeSite {
  const OperatorTable* table = nullptr;
  ParallelContext parallel = {};  ///< groups of a table, if the layout has them
  Device* device = nullptr;       ///< device of a table whose calls return before their work is complete
  bool own_memory = false;        ///< dry: calls and memory are as on a device with separate memory
  MsClock now = steady_ms;        ///< clock of the times
};

/// Not thread-safe; the ranks of a replica with groups run each on a separate thread. The table and groups of the site
/// outlive the probe.
class PassProbe {
 public:
  /// Builds the section; its parameters hold fresh values, or nothing in a dry pass. Throws JobError.
  PassProbe(ProbedSection probed, LayoutRank rank, const ProbeSite& site);

  /// Runs a micro-batch. Inputs from other sections than sources are zeros, and so are gradients of outputs.
  ObservedPasses pass(const MicroBatchPlan& batch);
  /// Ends a step after at least one pass, with norm 1. Throws std::logic_error for a section that is not trained.
  ObservedStepEnd step_end();
  /// Runs passes on the site's device as a run does: calls are not observed, and may be replayed from a recording.
  /// Returns the milliseconds of each pass, forward and backward.
  std::vector<double> whole_passes(const MicroBatchPlan& batch, int count);

  /// Returns the bytes of parameters, gradients and optimizer state in a dry pass.
  [[nodiscard]] std::size_t parameter_bytes() const { return parameter_bytes_; }
  /// Returns SectionRunner::working_bytes(); of dry passes by DY-4 the largest bytes of their cost.
  [[nodiscard]] std::size_t working_bytes() const { return std::max(cost_bytes_, runner_->working_bytes()); }
  [[nodiscard]] SectionRunner& runner() { return *runner_; }

 private:
  struct Fed {
    std::vector<SpaceMemory> memory;
    std::vector<PortTensor> tensors;
  };
  [[nodiscard]] bool dry() const { return site_.table == nullptr; }
  [[nodiscard]] bool whole() const { return probed_.described != nullptr && !probed_.described->runs_dry(); }
  /// Returns the call that stands for a pass in a direction, "forward" or "backward" (DY-4).
  [[nodiscard]] OperatorCall whole_call(const std::string& direction, const MicroBatchPlan& batch);
  /// Returns the memory of tensors at ports: the device's, if it is separate, except for values of sources.
  [[nodiscard]] MemorySpace& port_memory(bool of_source);
  [[nodiscard]] const GraphNode& node() const { return probed_.graph->node(probed_.section); }
  [[nodiscard]] Layout layout() const { return node().layout_of(probed_.replica); }
  [[nodiscard]] ObservedTable make_table();
  void called(OperatorCall call, double ms);
  /// Returns the rank's groups, observed.
  [[nodiscard]] ParallelContext make_groups();
  [[nodiscard]] std::shared_ptr<Section> build();
  /// Adds a rank's tensor at an end of an edge, zero; `of_device`: its memory on a device with separate memory.
  const Tensor& add(Fed& fed, EdgeId edge, Sharding sharding, const std::string& port, const MicroBatchPlan& batch,
                    MemoryKind of_device);
  [[nodiscard]] Fed inputs(const MicroBatchPlan& batch);
  [[nodiscard]] Fed outputs(const MicroBatchPlan& batch, bool gradients);
  [[nodiscard]] Fed input_gradients(const MicroBatchPlan& batch);
  [[nodiscard]] ObservedPasses one_pass(const MicroBatchPlan& batch);
  /// Runs `work`, observed as the single call.
  std::pair<std::vector<ObservedCall>, double> observed_whole(OperatorCall call, const std::function<void()>& work);
  /// Runs `work`; returns its calls and its milliseconds.
  std::pair<std::vector<ObservedCall>, double> observed(const std::function<void()>& work);

  ProbedSection probed_;
  LayoutRank rank_;
  ProbeSite site_;
  DrySpace space_;
  std::vector<ObservedCall> calls_;
  std::unique_ptr<WorkTimer> timer_;  // timer of a device, with a mark before the calls and after each
  ObservedTable table_;
  std::vector<std::unique_ptr<ObservedGroup>> groups_;
  SectionContext context_;
  std::size_t parameter_bytes_ = 0;
  std::unique_ptr<SectionRunner> runner_;
  std::uint64_t steps_ = 0;
  bool warm_ = false;  // a pass has run
  std::size_t cost_bytes_ = 0;
  std::string code_;  // digest of the section's description, for names of calls (DY-4)
};

/// Returns the milliseconds of all calls.
[[nodiscard]] double sum_ms(const std::vector<ObservedCall>& calls);

}  // namespace maestro
