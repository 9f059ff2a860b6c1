// From a plan to running sections: where a resumed run goes on, and the sections of this process with their state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "actors/job_plan.hpp"
#include "runtime/ops/operator_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// Where a run begins: at step 1, or behind a checkpoint.
struct StartPoint {
  std::filesystem::path checkpoint;  ///< empty for a fresh run
  std::uint64_t first_step = 1;
};

/// Resolves and verifies --resume. Throws JobError: nothing there, damaged files, another seed, a global batch that
/// would skip or repeat samples.
[[nodiscard]] StartPoint find_start_point(const JobPlan& plan);

struct BuiltReplica {
  ReplicaPlace place;
  std::shared_ptr<SectionRunner> runner;  ///< shared with work on the device thread
};

/// Not thread-safe; used by the starting thread. Plan, table and start point must outlive it.
class ReplicaBuilder {
 public:
  ReplicaBuilder(const JobPlan& plan, const OperatorTable& ops, const StartPoint& start)
      : plan_(&plan), ops_(&ops), start_(&start) {}

  /// The replicas of one process, with weights or checkpointed state in place; replicas of a frozen section that is
  /// shareable() share it. Throws JobError for what cannot be loaded.
  [[nodiscard]] std::vector<BuiltReplica> build_all(ProcessRank rank) const;
  /// Loads and forgets every stored state that `rank` will not load itself: damage is told once, before any process
  /// starts. Throws JobError.
  void try_stored_states(ProcessRank rank) const;

 private:
  [[nodiscard]] SectionContext context(const ReplicaPlace& place) const;
  [[nodiscard]] std::shared_ptr<Section> load(const ReplicaPlace& place) const;

  const JobPlan* plan_;
  const OperatorTable* ops_;
  const StartPoint* start_;
};

}  // namespace maestro
