// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run, on disk and in memory: replicas write their parts into a common folder; after the last
// part, the writer's thread commits the checkpoint (CR-3). Owns the uncommitted checkpoints and the steps of the last
// committed ones. Coordinator's thread only.
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

  /// Creates a checkpoint's folder, the only file work on the caller's thread. Returns the boundary at which replicas
  /// write their parts. `ahead`: sections whose part is from a later step.
  [[nodiscard]] Result<StepBoundary> begin(const RunUnit& unit, std::map<SectionId, StepId> ahead);
  void add_part(const SnapshotWritten& written);
  [[nodiscard]] bool complete(const RunUnit& unit) const { return open_.at(key_of(unit)).parts == trained_sections_; }
  /// Commits a complete checkpoint on the writer's thread, and copies it to the archive if the step is due.
  void commit(const RunUnit& unit, const Committed& done, const Failed& failed);
  /// Records a committed checkpoint. `newest`: a run that continues after a lost process starts from it.
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
  /// Returns a function for the writer's thread that copies a committed checkpoint to the archive; empty: none is due.
  [[nodiscard]] std::function<Status(const std::filesystem::path&)> archiving(const RunUnit& unit) const;

  const CoordinatorOptions* options_;
  std::size_t trained_sections_;
  std::map<UnitKey, Parts> open_;
  std::optional<StepId> stored_;
  std::optional<StepId> newest_;
};

}  // namespace maestro
