// SPDX-License-Identifier: Apache-2.0
// Builds this process's sections, with their state, from a plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "actors/process/start_point.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/ops/operator_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

struct BuiltReplica {
  ReplicaPlacement place;
  std::vector<std::shared_ptr<SectionRunner>> runners;  ///< runners by rank; shared with jobs on the device threads
  std::vector<std::unique_ptr<Communicator>> groups;    ///< referenced by the ranks' contexts
  /// Permanently aborts ranks that wait for each other in collectives or for other processes. Called before their
  /// devices stop.
  void abort(const std::string& why) const {
    for (const auto& runner : runners) runner->section().interrupt();
    for (const auto& group : groups) group->abort(why);
  }
};

/// The frozen sections that a process reads only once for all starts of a run: shareable(), in host memory, and of
/// single-rank replicas. Not thread-safe.
class FrozenSections {
 public:
  /// Keeps the frozen sections of `replicas`, whose jobs have ended. Their operator table must outlive this object.
  void keep(const SectionGraph& graph, const std::vector<BuiltReplica>& replicas);
  /// Returns a kept section; null: not kept.
  [[nodiscard]] std::shared_ptr<Section> of(SectionId section) const;

 private:
  std::map<SectionId, std::shared_ptr<Section>> sections_;
};

/// Not thread-safe; used by the starting thread. Plan, table, start point and kept sections must outlive it.
class ReplicaBuilder {
 public:
  /// Returns the device on which a replica's rank is built and will run.
  using DeviceOf = std::function<Device&(const ReplicaPlacement&, LayoutRank)>;
  /// `host_ops`: operators for state that is loaded only as a check. `groups_end` ends groups of devices.
  ReplicaBuilder(const ResolvedJob& plan, const OperatorTable& host_ops, const StartPoint& start,
                 const FrozenSections& frozen, std::shared_ptr<AbortReason> groups_end, DeviceOf device_of)
      : plan_(&plan),
        host_ops_(&host_ops),
        start_(&start),
        frozen_(&frozen),
        groups_end_(std::move(groups_end)),
        device_of_(std::move(device_of)) {}

  /// Builds replicas with weights or checkpointed state; replicas of a shareable() frozen section share it. Throws
  /// JobError for state that cannot be loaded.
  [[nodiscard]] std::vector<BuiltReplica> build_all(const std::vector<ReplicaPlacement>& places) const;
  /// Loads and discards every stored state that `process` itself will not load, so that damage is reported once, before
  /// any process starts. `again`: an earlier start of the run has loaded the weights. Throws JobError.
  void try_stored_states(ProcessId process, bool again) const;

 private:
  [[nodiscard]] SectionContext context(const ReplicaPlacement& place, const ParallelContext& parallel,
                                       const OperatorTable& ops) const;
  [[nodiscard]] std::shared_ptr<Section> load(const ReplicaPlacement& place, const SectionContext& made_from) const;
  /// Makes a replica keep only its shard of the optimizer state, with `zero`.
  void share_moments(const ReplicaPlacement& place, Parameters& parameters) const;
  /// Returns the contexts of a replica's ranks; `groups` receives their groups.
  [[nodiscard]] std::vector<ParallelContext> ranks_of(const ReplicaPlacement& place,
                                                      std::vector<std::unique_ptr<Communicator>>& groups) const;
  /// Creates a group of a replica's ranks: threads over host memory, or devices.
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_group(const ReplicaPlacement& place,
                                                                      const RankGroup& group) const;
  /// Returns a section that a single-rank replica can share with another replica or an earlier start; null: none.
  [[nodiscard]] std::shared_ptr<Section> shared(SectionId section, const OperatorTable& ops,
                                                const std::vector<BuiltReplica>& before) const;
  void build(BuiltReplica& replica, const std::vector<BuiltReplica>& before) const;

  const ResolvedJob* plan_;
  const OperatorTable* host_ops_;
  const StartPoint* start_;
  const FrozenSections* frozen_;
  std::shared_ptr<AbortReason> groups_end_;
  DeviceOf device_of_;
};

}  // namespace maestro
