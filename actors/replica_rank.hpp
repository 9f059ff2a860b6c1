// One rank of a section replica: a device with its share of the section, and the ports and the gradient reduction that
// belong to it. Plain class; the replica's actor passes messages in and says when passes run.
//
// RK-1: at most one piece of work of a rank is on its device at any time.
// RK-2: work that meets other ranks in collectives reaches the devices of all ranks in one order (ReplicaSpec::gang),
//       so that ranks never wait for each other in a circle.
// RK-3: a rank whose work fails aborts its collectives, and so does one that is woken by that: no rank waits for it.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gradient_mirror.hpp"
#include "actors/messages.hpp"
#include "actors/network.hpp"
#include "actors/opened_memory.hpp"
#include "actors/replica_ports.hpp"
#include "actors/replica_reduction.hpp"
#include "actors/replica_trace.hpp"
#include "actors/snapshot_writer.hpp"
#include "runtime/device/device.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// Where one rank works.
struct RankSpec {
  std::shared_ptr<SectionRunner> runner;  ///< shared with work on the device thread
  Device* device = nullptr;
};

/// What a replica is made of; shared parts outlive the actor system.
struct ReplicaSpec {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  ProcessRank rank;
  SampleRef largest{SampleId(0), 1};  ///< the most rows that a sample has, by axis
  FlowLimits limits;
  /// What a micro-batch's passes take on an emulated device; empty for a real one.
  std::function<PassCost(std::span<const SampleRef>)> emulated_ms;
  Epoch epoch;
  bool remote = false;
  JobPaths paths;
  const DeviceBackend* backend = nullptr;            ///< of ranks on devices with memory of their own
  OpenedMemory* opened = nullptr;                    ///< likewise
  std::function<void(const std::string& line)> log;  ///< from any thread; may be empty
  bool global_clip = false;
  std::vector<RankSpec> ranks;              ///< of the section's layout
  const OperatorTable* host_ops = nullptr;  ///< for sums in memory of the processor
  std::mutex* gang = nullptr;               ///< of all replicas of the process (RK-2); may be absent with one rank
  Network* network = nullptr;
  TraceRecorder* trace = nullptr;
  SnapshotWriter* snapshots = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< for error messages; absent in rank 0
  caf::actor supervisor;
  caf::actor bridge;  ///< judges failed writes
};

/// What a piece of work gives: known at once, or asked for when the device has completed it.
class WorkResult {
 public:
  WorkResult(WorkDone known) : known_(std::move(known)) {}                            // NOLINT: stands for either
  WorkResult(std::function<WorkDone()> complete) : complete_(std::move(complete)) {}  // NOLINT
  [[nodiscard]] WorkDone get() const { return complete_ ? complete_() : known_; }

 private:
  WorkDone known_;
  std::function<WorkDone()> complete_;
};

/// Not thread-safe; belongs to the replica's actor.
class ReplicaRank {
 public:
  using Job = std::function<WorkResult()>;
  /// `spec` and what it refers to outlive the rank.
  ReplicaRank(const ReplicaSpec& spec, std::uint32_t index, PortEvents events);
  ~ReplicaRank();
  ReplicaRank(const ReplicaRank&) = delete;
  ReplicaRank& operator=(const ReplicaRank&) = delete;

  [[nodiscard]] ReplicaPorts& ports() { return ports_; }
  [[nodiscard]] const ReplicaPorts& ports() const { return ports_; }
  [[nodiscard]] std::vector<ReductionAddress> reduction_addresses() const;
  void connect_reductions(const Directory& directory, const ReplicaReduction::Deliver& deliver);
  [[nodiscard]] ReplicaReduction& reduction(ReductionKind kind) { return reductions_[static_cast<std::size_t>(kind)]; }
  /// True when the event was one of a reduction's.
  bool reduction_landed(std::uint32_t immediate);
  bool reduction_write_finished(std::uint64_t cookie);
  [[nodiscard]] ReplicaTrace& trace() { return trace_; }
  [[nodiscard]] const std::shared_ptr<SectionRunner>& runner() const { return spec_->ranks[index_].runner; }
  /// Sends events of this rank's rings and writes to `self`.
  void route(const caf::actor& self) const;

  /// Takes in what arrived for a pass and the buffers it fills; the job runs the pass.
  Result<Job> pass(const SharedMicroBatch& batch, bool forward, bool backward);
  [[nodiscard]] TracedWork traced_pass(const MicroBatchPlan& plan, bool forward, bool backward) const;
  /// The pass is done: what it made leaves as credits allow.
  Status send(const MicroBatchPlan& plan);

  /// Adds the gradient of a tied parameter up over the two stages that hold it, then all gradients over the replicas.
  /// Where replicas share their moments, this one has the sum of its shard in the end.
  void begin_reduction();
  /// Replicas that share their moments have stepped: they exchange what they offered (Parameters::offer).
  void begin_distribution();
  /// Brings what replicas have of `which` moments into the gradients of replica 0.
  void begin_gather(ParameterBuffer which);
  /// Work for the device that the reduction is ready for, if any; then reduction_worked().
  [[nodiscard]] std::optional<std::pair<std::string_view, Job>> reduction_work();
  void reduction_worked(const std::function<void(const caf::actor&, ShardRead)>& tell_read);
  /// What was begun is complete. May begin the second reduction.
  [[nodiscard]] bool reduced();

  /// Queues work; WorkDone, or Failure, comes to `self`.
  void submit(TracedWork traced, Job job, std::chrono::nanoseconds lasts, const caf::actor& self) const;

 private:
  /// Gradients of a device are taken out before they move and put back afterwards; a held sum is put back for the
  /// optimizer's step, and what has taken its place taken out again. The others are here all along.
  enum class Reducing : std::uint8_t { no, leaving, moving, returning, held, working };
  enum class Doing : std::uint8_t { take_out, sum, copy, put_back };
  [[nodiscard]] const GraphNode& node() const { return spec_->graph->node(spec_->section); }
  void begin(ReductionKind kind);
  /// Of the reduction that runs: brings the own shard into place.
  [[nodiscard]] Job sum_job();
  [[nodiscard]] Job copy_job(Doing doing);
  /// The gradients that are taken out or put back now.
  [[nodiscard]] ShardRange moved_range() const;
  void taken_out();
  void put_back();
  void finish_reduction();

  const ReplicaSpec* spec_;
  std::uint32_t index_;
  ReplicaPorts ports_;
  GradientMirror mirror_;                                     // before the reductions, which work on it
  std::array<ReplicaReduction, reduction_kinds> reductions_;  // by kind
  ReplicaTrace trace_;
  Reducing reducing_ = Reducing::no;
  Doing doing_ = Doing::sum;                                  // while working
  bool holding_ = false;                                      // what is put back or taken out is a held sum
  ReductionKind at_ = ReductionKind::replicas;                // the reduction that runs
  ParameterBuffer offered_ = ParameterBuffer::first_moments;  // what is gathered
  std::vector<SendBuffer> sending_;
};

}  // namespace maestro
