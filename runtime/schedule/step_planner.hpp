// Turns the ordered samples of a step into micro-batches for every section and the pieces between them. Pure.
//
// ST-1: every sample is in exactly one micro-batch of every section.
// ST-2: every row of every edge is written exactly once: the pieces of one sequence cover its rows without overlap.
// ST-3: sequences of one receiver on one edge count up without gaps over the whole run.
// ST-4: micro-batch boundaries depend only on the samples and the section's micro-batch size, not on replicas or
//       processes, so arithmetic is the same under every placement.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// What the planner knows of the machine: which replicas share a device, and what a token costs. From FLOP models, so
/// that plans repeat; empty vectors mean nothing is known and micro-batches go round.
struct LaneModel {
  std::vector<std::vector<int>> device;  ///< [section][replica], equal numbers share a device
  std::vector<double> cost_per_token;    ///< [section], forward and backward together, any one unit
};

class StepPlanner {
 public:
  /// The graph must be validated and outlive the planner.
  explicit StepPlanner(const SectionGraph& graph, LaneModel lanes = {});
  /// `loss_scale`: 1 / target tokens of the batch.
  [[nodiscard]] StepPlan plan(StepId step, Pass pass, std::span<const SampleRef> ordered, double loss_scale);

 private:
  struct SectionBatches {
    std::size_t first = 0;  // index into StepPlan::micro_batches
    std::size_t count = 0;
  };
  void cut(StepPlan& plan, SectionId section, std::span<const SampleRef> ordered, double loss_scale,
           SectionBatches& batches);
  void join(StepPlan& plan, EdgeId edge, const SectionBatches& producers, const SectionBatches& consumers,
            bool gradient);
  /// Trained sections go round their replicas, so each holds the same share; forward-only sections take the replica
  /// whose device has the least to do in this step.
  ReplicaIndex choose_replica(SectionId section, std::size_t batch, double cost);
  void reset_loads(std::span<const SampleRef> ordered);

  const SectionGraph* graph_;
  LaneModel lanes_;
  std::vector<double> device_load_;
  std::vector<std::vector<std::uint64_t>> next_sequence_;           // [edge][consumer replica]
  std::vector<std::vector<std::uint64_t>> next_gradient_sequence_;  // [edge][producer replica]
};

}  // namespace maestro
