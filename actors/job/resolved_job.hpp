// SPDX-License-Identifier: Apache-2.0
// A composed job, resolved: graph, section factories and settings, the same in every process. Nothing has started yet.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/job/memory_estimate.hpp"
#include "actors/job/rollout_plan.hpp"
#include "actors/job/run_options.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/job/config.hpp"
#include "runtime/job/plan_reader.hpp"
#include "runtime/job/training_stages.hpp"
#include "runtime/observe/run_observer.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section.hpp"

namespace maestro {

/// A section or a stage, for each graph node.
struct PlannedSection {
  SectionConfig config;  ///< settings of the section, but `devices` of this stage
  SectionFactory factory;
  Stage stage;
};

struct ResolvedJob {
  std::string name;
  TrainConfig train;      ///< `steps` are those up to the end of the stage
  TrainingStages stages;  ///< [[stages]]
  StageSpan stage;        ///< stage that this plan is for
  TransportConfig transport;
  ScheduleConfig schedule;
  GuardConfig guard;
  PlanConfig planned;  ///< [plan]
  RunOptions options;
  std::shared_ptr<const Corpus> corpus;  ///< shared by data source and source section
  std::optional<RolloutPlan> rollouts;   ///< plan of made samples; none: the job has no generator
  std::shared_ptr<SampleStore> samples = std::make_shared<SampleStore>();  ///< made samples, as `corpus`
  std::string tokenizer;              ///< "bytes", a folder or a file; empty: tokens without text
  SampleRef largest{SampleId(0), 1};  ///< a sample's largest number of rows, by axis
  std::int64_t max_bad_samples = 0;
  std::int64_t validation_samples = 0;                        ///< samples in a validation pass
  std::shared_ptr<const OperatorTable> meta_ops;              ///< referenced by meta_sections
  std::vector<std::shared_ptr<const Section>> meta_sections;  ///< ports and costs only, by SectionId
  std::vector<HeldElements> held;                             ///< elements of a rank, by SectionId
  std::vector<HeldElements> below;                            ///< a rank's frozen weights below adapters, by SectionId
  SectionGraph graph;
  std::vector<PlannedSection> sections;  ///< sections and stages, by SectionId
  std::vector<ReplicaPlacement> places;
  SampleCost cost;                      ///< FLOPs (or another unit) for a sample's passes
  EmulationConfig emulation;            ///< [emulation]
  double unit_per_ms = 1;               ///< units per millisecond of an emulated device
  std::vector<double> flops_per_token;  ///< FLOPs for the largest sample: forward and backward, if any; by SectionId
  std::vector<double> pass_bytes;       ///< a rank's bytes for the largest micro-batch, by SectionId; negative: by cost
  double program_bytes = 0;             ///< a process' bytes before its sections are built: program and corpus
  std::vector<NamedObserver> observers;
  std::vector<std::string> notes;
  std::string effective_job;                    ///< the job file with all overrides, TOML
  std::map<std::string, std::string> settings;  ///< settings of the effective job, by key
};

/// Returns the steps of the run, in all stages.
[[nodiscard]] inline std::int64_t all_steps(const ResolvedJob& plan) {
  return plan.stage.given() ? plan.stages.steps() : plan.train.steps;
}
/// Returns the steps over which the learning rates rise and decay.
[[nodiscard]] inline std::int64_t scheduled_steps(const ResolvedJob& plan) {
  return plan.stage.given() ? plan.stage.end - plan.stage.begin : plan.train.scheduled_steps();
}

/// Returns whether the coordinator combines the gradient norms of all trained sections.
[[nodiscard]] inline bool joins_norms(const ResolvedJob& plan) {
  return plan.train.clip == ClipScope::global || plan.guard.action == GuardAction::skip;
}

}  // namespace maestro
