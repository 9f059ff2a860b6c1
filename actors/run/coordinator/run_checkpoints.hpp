// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run, on disk and in memory: replicas write the parts into a common folder; the last part makes
// it complete, and the writer's thread commits it (CR-3). Owns the checkpoints that are not committed and the steps of
// the last ones that are. Coordinator's thread only.
#pragma once

#include "actors/run/coordinator/coordinator_options.hpp"
#include "actors/run/coordinator/open_unit.hpp"

namespace maestro {

class RunCheckpoints {
 public:
  /// Called on the writer's thread.
  using Committed = std::function<void(const CheckpointCommitted&)>;
  using Failed = std::function<void(const std::string& problem)>;

  /// The options outlive it.
  explicit RunCheckpoints(const CoordinatorOptions& options);

  /// Creates the folder of a checkpoint, the only file work on the caller's thread. Returns the boundary at which
  /// replicas write their parts. `ahead`: sections whose part is of a later step.
  [[nodiscard]] Result<StepBoundary> begin(const RunUnit& unit, std::map<SectionId, StepId> ahead);
  void add_part(const SnapshotWritten& written);
  [[nodiscard]] bool complete(const RunUnit& unit) const { return open_.at(key_of(unit)).parts == trained_sections_; }
  /// Commits a complete checkpoint on the writer's thread, and copies it to the archive if the step is due.
  void commit(const RunUnit& unit, const Committed& done, const Failed& failed);
  /// Records a committed checkpoint. `newest`: a run that goes on after a loss begins with it.
  void committed(const CheckpointCommitted& committed, bool newest);

  /// Returns the step of RunRecord::checkpoint, if this run wrote it.
  [[nodiscard]] std::optional<StepId> stored() const { return stored_; }
  /// Returns the step of RunRecord::newest, if this run wrote it.
  [[nodiscard]] std::optional<StepId> newest() const { return newest_; }

 private:
  struct Parts {
    std::string staging;
    std::map<SectionId, StepId> ahead;
    std::vector<FileRecord> files;
    std::size_t parts = 0;
  };
  [[nodiscard]] const CheckpointStore& store_of(RunUnit::Kind kind) const {
    return kind == RunUnit::Kind::shadow ? *options_->shadows : options_->snapshots->store();
  }
  [[nodiscard]] Manifest manifest_of(StepId step, const Parts& complete) const;
  /// Returns the copy of a committed checkpoint to the archive, for the writer's thread; empty: none is due.
  [[nodiscard]] std::function<Status(const std::filesystem::path&)> archiving(const RunUnit& unit) const;

  const CoordinatorOptions* options_;
  std::size_t trained_sections_;
  std::map<UnitKey, Parts> open_;
  std::optional<StepId> stored_;
  std::optional<StepId> newest_;
};

}  // namespace maestro
