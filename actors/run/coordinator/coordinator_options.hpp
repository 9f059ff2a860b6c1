// SPDX-License-Identifier: Apache-2.0
// The settings of a Coordinator and the services that it uses. Its parts read them by reference.
#pragma once

#include <atomic>

#include "actors/run/coordinator/run_guard.hpp"
#include "actors/run/record/run_journal.hpp"
#include "actors/run/record/step_figures.hpp"
#include "runtime/checkpoint/checkpoint_archive.hpp"

namespace maestro {

struct CoordinatorOptions {
  const SectionGraph* graph = nullptr;
  RunScheduleOptions schedule;
  std::int64_t ahead = 2;
  std::int64_t global_batch = 1;
  std::uint64_t seed = 1;
  Manifest origin;                            ///< run, data and settings that every checkpoint records
  std::uint64_t epoch_samples = 1;            ///< samples of an epoch
  std::string generator;                      ///< table of the samples that the run makes; empty: it makes none
  bool synchronous = false;                   ///< a unit is announced when its predecessor has ended
  bool measure = false;                       ///< plans follow measured times
  PlanConfig predicted = {};                  ///< [plan]
  bool moves_placements = false;              ///< replicas of repeatable sections may begin anew
  std::map<SectionId, StepId> trained_until;  ///< sections that had trained beyond the first step at the start
  bool global_clip = false;                   ///< gradients are clipped by the norm over all sections
  bool joined_norms = false;                  ///< all trained sections receive their norms together
  std::int64_t max_left_out = 0;              ///< unreadable samples tolerated before the run fails
  std::shared_ptr<RunRecord> record;          ///< shared with the starting thread, which reads it after the run
  std::shared_ptr<RunJournal> journal;        ///< null: the run writes no record
  std::optional<RunGuard> guard;              ///< none: losses are not judged
  /// Figures of the run; only the coordinator uses them until the run has ended.
  std::shared_ptr<StepFigures> figures = std::make_shared<StepFigures>();
  bool next_stage = false;          ///< the run goes on with the job's next stage, unless it is stopped
  std::uint64_t rollbacks = 0;      ///< rollbacks of the run so far
  DataCursor cursor;                ///< position in the training data at each step
  std::uint64_t archive_every = 0;  ///< checkpoints of its multiples are also kept in `archive`
  ArchiveForm archive_form = ArchiveForm::full;
  std::optional<CheckpointArchive> archive;  ///< required by archive_every and by the guard
  SnapshotWriter* snapshots = nullptr;
  const CheckpointStore* shadows = nullptr;  ///< checkpoints in memory; null: none are made
  Console* console = nullptr;
  std::function<void()> finishing;                     ///< called once, before the event `finished`; may be empty
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< the oldest unfinished step; may be null
  std::atomic<std::uint64_t>* events = nullptr;        ///< incremented by every progress message; may be null
  caf::actor data_source;
  caf::actor planner;
  caf::actor supervisor;

  void note_event(const std::string& event, const EventFields& fields) const {
    if (journal) journal->event(event, fields);
  }
};

}  // namespace maestro
