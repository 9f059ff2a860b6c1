// SPDX-License-Identifier: Apache-2.0
// Turns the samples of a step into micro-batches for every section, obtains their lanes and their order from the
// scheduling policy, and computes the pieces between them. Pure.
//
// ST-1 (each sample once): every sample is in exactly one micro-batch of every section it activates (MC-1).
// ST-2 (each row written once): the pieces of a sequence cover its rows at each rank of the receiver without overlap
//       (RE-1 to RE-4). A micro-batch without rows on an edge has no sequence there.
// ST-3 (sequences without gaps): the sequences of a receiver on an edge count up without gaps over the run, in
//       the receiving lane's order: forward order for inputs, backward order for gradients. Each
//       sequence has an arrival for every rank of the receiver, without pieces if the rank holds no row.
// ST-4 (independent of placement): micro-batch boundaries depend on the samples, the sections' limits and the policy's
//       packing order, not on processes, so arithmetic is the same under every placement.
// ST-5 (input window): a forward pass starts fewer than `window` places after the oldest input that its lane still
//       holds: input rings release in order, so a plan that breaks this would wait for itself. Such a plan is replaced
//       by a plan of `arrival`.
// ST-6 (trained already): leaving out a section's micro-batches changes nothing in other sections' micro-batches but
//       the pieces between them, and places of turns.
// ST-7 (turns): the turns on a device are the passes of its lanes in the order of the schedule, counted from 0 without
//       gaps. So each pass comes after everything that it waits for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/micro_batch_cut.hpp"
#include "runtime/schedule/step_plan.hpp"
#include "runtime/wavefront/policy.hpp"

namespace maestro {

struct StepPlannerOptions {
  const SectionGraph* graph = nullptr;  ///< validated; outlives the planner
  std::shared_ptr<const SchedulingPolicy> policy;
  CostModel costs;
  /// WorkloadSection::devices by section; empty: every lane has a separate device.
  std::vector<std::vector<std::vector<int>>> devices;
  /// Devices on which a lane takes turns (DeviceTurns), by [section][replica]; empty, here or in a section: none.
  std::vector<std::vector<std::vector<std::uint32_t>>> turns = {};
  /// WorkloadSection::speeds by section; empty: all lanes are alike. `costs` are on the fastest lanes.
  std::vector<std::vector<double>> speeds = {};
  FlowLimits limits;
  /// Sections that need no training up to a step; the step is planned, and their micro-batches are left out (ST-6).
  std::map<SectionId, StepId> trained_until;
};

/// A step as the policy planned it, for comparison with measured passes.
struct PlannedStep {
  StepPlan plan;
  Workload workload;
  Schedule schedule;
  /// Section and MicroBatchPlan::index, by task.
  std::vector<std::pair<SectionId, std::uint32_t>> tasks;
};

/// Not thread-safe.
class StepPlanner {
 public:
  explicit StepPlanner(StepPlannerOptions options);
  /// Plans a step. `loss_scale`: 1 / target tokens of the batch. Returns the policy's Error if the limits do not let
  /// the step run.
  [[nodiscard]] Result<PlannedStep> plan(StepId step, Pass pass, std::span<const SampleRef> samples, double loss_scale);
  /// Returns the cost model, to fit it to measured passes.
  [[nodiscard]] CostModel& costs() { return options_.costs; }

 private:
  [[nodiscard]] std::vector<SampleRef> packed(Pass pass, std::span<const SampleRef> samples) const;
  [[nodiscard]] Workload sections_and_edges(Pass pass) const;
  [[nodiscard]] WorkloadTask task_of(const Workload& workload, std::size_t at, std::span<const SampleRef> samples,
                                     Pass pass) const;
  void add_tasks(PlannedStep& planned, const StepCut& cut, std::span<const SampleRef> samples, Pass pass) const;
  Result<Schedule> schedule(const Workload& workload);
  [[nodiscard]] bool within_window(const Workload& workload, const Schedule& schedule) const;
  void place(PlannedStep& planned, const StepCut& cut, std::span<const SampleRef> samples, double loss_scale) const;
  void add_turns(PlannedStep& planned) const;
  void join(StepPlan& plan, Channel channel);

  StepPlannerOptions options_;
  std::shared_ptr<const SchedulingPolicy> fallback_;
  std::vector<SectionId> order_;                                             // topological, without sources
  std::vector<std::size_t> workload_index_;                                  // index by section; npos for sources
  std::map<std::pair<Channel, ReplicaIndex>, std::uint64_t> next_sequence_;  // next sequence by receiver
  Workload last_workload_;
  Schedule last_schedule_;
};

}  // namespace maestro
