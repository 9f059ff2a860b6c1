// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread: the real coordinator and section replicas, with sections that know what every row must
// hold and devices that run their work when the simulation says so. Messages and device work interleave at random.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "actors/replica/section_replica.hpp"
#include "actors/run/coordinator.hpp"
#include "actors/services/network.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/actors/job/simulated_device.hpp"
#include "tests/schedule/random_graph.hpp"

namespace maestro::testing {

struct SimulationOptions {
  std::int64_t global_batch = 8;
  std::int64_t validation_samples = 8;
  std::int64_t slots = 1;
  std::int64_t ahead = 2;
  std::uint64_t steps = 4;
  std::uint64_t validate_every = 2;
  std::int64_t devices = 2;
  bool global_clip = false;
  bool zero = false;                   ///< every other trained section shares its moments among its replicas
  std::uint64_t checkpoint_every = 0;  ///< with `folder`
  std::filesystem::path folder;        ///< of checkpoints; empty: none are made
  std::string policy = "arrival";
  bool measure = false;  ///< plans follow measured times
  bool groups = false;   ///< gradients are reduced in groups of devices where replicas have devices of their own
};

class SimulatedJob {
 public:
  SimulatedJob(std::uint64_t seed, SectionGraph graph, const SimulationOptions& options);
  ~SimulatedJob();
  SimulatedJob(const SimulatedJob&) = delete;
  SimulatedJob& operator=(const SimulatedJob&) = delete;

  /// Runs until nothing is left to do. True when the coordinator has ended the run.
  bool run();
  /// What went wrong in sections and replicas: wrong rows, wrong gradients, broken protocols.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  /// Who waits for whom, one line each.
  [[nodiscard]] std::string waiting();
  [[nodiscard]] const RunRecord& record() const { return *record_; }
  /// Rows that went forward through a section, over all replicas and passes.
  [[nodiscard]] std::int64_t rows_forwarded(SectionId section) const;
  /// Rows of all batches, and the sum of their values by training step.
  [[nodiscard]] std::int64_t rows_read(Axis axis) { return rows_read_[axis]; }
  [[nodiscard]] const std::map<std::uint64_t, double>& step_sums(Axis axis) { return step_sums_[axis]; }
  /// Of every rank of every replica of a trained section, to be looked at when the run is over.
  [[nodiscard]] const std::vector<std::shared_ptr<SectionRunner>>& runners(SectionId section) const {
    return runners_.at(section);
  }
  /// Whether replicas of a section share their moments in this job.
  [[nodiscard]] bool optimizer_sharded(SectionId section) const;
  [[nodiscard]] SimulatedBackend& backend() { return backend_; }
  /// Elements of a section's gradient, each of which adds up the values of all rows.
  static constexpr std::int64_t parameters = 40;

 private:
  BatchMetadata read(const BatchRequest& request);
  /// The writer's thread has done all it was given; then messages are this thread's alone again.
  void drain_writer();
  /// By section and replica: the devices of its ranks.
  [[nodiscard]] std::vector<ReplicaPlacement> draw_places();
  [[nodiscard]] Device* device_of(const ReplicaPlacement& place, std::size_t rank);
  void spawn_replicas(const SimulationOptions& options);
  void spawn_coordinator(const SimulationOptions& options, StepPlannerOptions planning);

  Generator random_;
  SectionGraph graph_;
  SimulationOptions options_;
  cpu::CpuOperatorTable ops_;
  std::vector<std::string> problems_;
  std::map<SectionId, std::int64_t> rows_forwarded_;
  std::map<SectionId, std::vector<std::shared_ptr<SectionRunner>>> runners_;
  std::map<Axis, std::int64_t> rows_read_;
  std::map<Axis, std::map<std::uint64_t, double>> step_sums_;
  std::shared_ptr<RunRecord> record_ = std::make_shared<RunRecord>();
  TraceRecorder trace_;
  Network network_;
  std::atomic<std::uint64_t> current_step_ = 0;
  std::ostringstream terminal_;
  Console console_;
  SimulatedBackend backend_;
  std::vector<ReplicaPlacement> places_;
  std::map<std::string, std::unique_ptr<SimulatedDevice>> devices_;  // by name; in groups by section, too
  ActorBench bench_;
  std::unique_ptr<SnapshotWriter> snapshots_;  // before the actors it tells
  caf::actor supervisor_;
  caf::actor coordinator_;
  std::vector<caf::actor> replicas_;
  ProcessInfo hello_;
  bool finished_ = false;
};

}  // namespace maestro::testing
