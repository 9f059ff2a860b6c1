// SPDX-License-Identifier: Apache-2.0
// A complete job in a single thread: the real coordinator and section replicas, with sections that check every row, and
// simulated devices. Messages and device work interleave at random.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "actors/replica/section_replica.hpp"
#include "actors/run/coordinator/coordinator.hpp"
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
  bool zero = false;                   ///< whether every other trained section shards its optimizer state
  std::uint64_t checkpoint_every = 0;  ///< steps between checkpoints; needs `folder`
  std::filesystem::path folder;        ///< folder for checkpoints; empty: none are written
  std::string policy = "arrival";
  bool measure = false;  ///< whether plans follow measured times
  int moves = 0;         ///< number of times that replicas of repeatable sections start again
  bool rescue = false;   ///< whether a process without a replica is lost at some moment (CR-6)
  bool groups = false;   ///< whether device groups reduce gradients if replicas have separate devices
};

class SimulatedJob {
 public:
  SimulatedJob(std::uint64_t seed, SectionGraph graph, const SimulationOptions& options);
  ~SimulatedJob();
  SimulatedJob(const SimulatedJob&) = delete;
  SimulatedJob& operator=(const SimulatedJob&) = delete;

  /// Runs until no work is left. Returns whether the coordinator has ended the run.
  bool run();
  /// Returns the errors of sections and replicas: wrong rows, wrong gradients, broken protocols.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  /// Returns a line for each actor that waits, with the reason.
  [[nodiscard]] std::string waiting();
  [[nodiscard]] int moves() const { return moves_; }
  [[nodiscard]] const RunRecord& record() const { return *record_; }
  /// Returns the rows that passed forward through a section, over all replicas and passes.
  [[nodiscard]] std::int64_t rows_forwarded(SectionId section) const;
  /// Return the rows of all batches, and the sum of their values by training step.
  [[nodiscard]] std::int64_t rows_read(Axis axis) { return rows_read_[axis]; }
  [[nodiscard]] const std::map<std::uint64_t, double>& step_sums(Axis axis) { return step_sums_[axis]; }
  /// Returns the runners of every rank of a trained section's replicas, for use after the run.
  [[nodiscard]] const std::vector<std::shared_ptr<SectionRunner>>& runners(SectionId section) const {
    return runners_.at(section);
  }
  /// Returns whether replicas of a section shard the optimizer state in this job.
  [[nodiscard]] bool optimizer_sharded(SectionId section) const;
  [[nodiscard]] SimulatedBackend& backend() { return backend_; }
  /// Elements in a section's gradient. Each element is the sum over all rows.
  static constexpr std::int64_t parameters = 40;

 private:
  BatchMetadata read(const BatchRequest& request);
  /// Makes the writer's thread wait until drain_writer(), so that the order of messages does not depend on its pace.
  void hold_writer();
  /// Waits until the writer's thread is idle; then only this thread sends messages again.
  void drain_writer();
  [[nodiscard]] std::vector<ReplicaPlacement> draw_places();
  [[nodiscard]] Device* device_of(const ReplicaPlacement& place, std::size_t rank);
  void spawn_replicas(const SimulationOptions& options);
  /// Moves placements as supervisors do (SV-8), in steps between which any message may be delivered.
  void begin_move();
  void continue_move();
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
  std::map<std::string, std::unique_ptr<SimulatedDevice>> devices_;  // by device name; with groups, by section, too
  ActorBench bench_;
  std::promise<void> held_;                    // keeps the writer waiting until it is set
  std::unique_ptr<SnapshotWriter> snapshots_;  // before the actors that receive its messages
  caf::actor supervisor_;
  caf::actor coordinator_;
  std::vector<caf::actor> replicas_;
  std::vector<ReplicaSpec> specs_;  // specifications of replicas_
  struct Move {
    enum class Next : std::uint8_t { gather, connect_keepers, connect_movers, begin_again };
    Next next = Next::gather;
    std::map<std::pair<SectionId, ReplicaIndex>, ReplicaAddress> addresses;
    std::vector<RingArrivals> arrivals;
    Directory directory;
  };
  std::optional<Move> move_;
  int moves_ = 0;  // moves begun
  bool lost_ = false;
  caf::actor mover_;  // receives the replicas' addresses
  ProcessInfo hello_;
  bool finished_ = false;
};

}  // namespace maestro::testing
