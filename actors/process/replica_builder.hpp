// SPDX-License-Identifier: Apache-2.0
// From a plan to running sections: the sections of this process with their state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/process/start_point.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/ops/operator_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

struct BuiltReplica {
  ReplicaPlacement place;
  std::vector<std::shared_ptr<SectionRunner>> runners;  ///< by rank; shared with work on the device threads
  std::vector<std::unique_ptr<Communicator>> groups;    ///< what the ranks' contexts refer to
  /// Wakes ranks that wait for each other in collectives, for good: to be called before their devices stop.
  void abort(const std::string& why) const {
    for (const auto& group : groups) group->abort(why);
  }
};

/// Not thread-safe; used by the starting thread. Plan, table and start point must outlive it.
class ReplicaBuilder {
 public:
  /// The device that a rank of a replica is built for and will work on.
  using DeviceOf = std::function<Device&(const ReplicaPlacement&, std::size_t rank)>;
  /// `host_ops`: for what is loaded only to see whether it can be. `groups_end` ends groups of devices.
  ReplicaBuilder(const JobPlan& plan, const OperatorTable& host_ops, const StartPoint& start,
                 std::shared_ptr<AbortReason> groups_end, DeviceOf device_of)
      : plan_(&plan),
        host_ops_(&host_ops),
        start_(&start),
        groups_end_(std::move(groups_end)),
        device_of_(std::move(device_of)) {}

  /// The replicas of one process, with weights or checkpointed state in place; replicas of a frozen section that is
  /// shareable() share it. Throws JobError for what cannot be loaded.
  [[nodiscard]] std::vector<BuiltReplica> build_all(ProcessId rank) const;
  /// Loads and forgets every stored state that `rank` will not load itself: damage is told once, before any process
  /// starts. Throws JobError.
  void try_stored_states(ProcessId rank) const;

 private:
  [[nodiscard]] SectionContext context(const ReplicaPlacement& place, const ParallelContext& parallel,
                                       const OperatorTable& ops) const;
  [[nodiscard]] std::shared_ptr<Section> load(const ReplicaPlacement& place, const SectionContext& made_from) const;
  /// With zero: a replica keeps its shard of the moments.
  void share_moments(const ReplicaPlacement& place, Parameters& parameters) const;
  /// The ranks of one replica and the groups they work in, which `groups` then owns.
  [[nodiscard]] std::vector<ParallelContext> ranks_of(const ReplicaPlacement& place,
                                                      std::vector<std::unique_ptr<Communicator>>& groups) const;
  /// Of the ranks first, first + stride, ... of a replica: threads over host memory, or devices.
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_group(const ReplicaPlacement& place, std::int64_t first,
                                                                      std::int64_t stride, std::int64_t size) const;
  void build(BuiltReplica& replica, const std::vector<BuiltReplica>& before) const;

  const JobPlan* plan_;
  const OperatorTable* host_ops_;
  const StartPoint* start_;
  std::shared_ptr<AbortReason> groups_end_;
  DeviceOf device_of_;
};

}  // namespace maestro
