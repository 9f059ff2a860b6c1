// The actor of one section replica: a thin shell that turns messages into calls of the lane, the ports and the
// reduction, and gives their work to the device thread. It never blocks; a handler does no arithmetic.
//
// RA-1: at most one piece of work of this replica is on the device at any time.
// RA-2: every failure goes to the supervisor, with section, replica and step; nothing is retried here.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "actors/network.hpp"
#include "actors/pass_log.hpp"
#include "actors/replica_ports.hpp"
#include "actors/replica_reduction.hpp"
#include "actors/replica_trace.hpp"
#include "actors/snapshot_writer.hpp"
#include "runtime/device/device.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

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
  bool global_clip = false;
  std::shared_ptr<SectionRunner> runner;  // shared with work on the device thread
  Device* device = nullptr;
  Network* network = nullptr;
  TraceRecorder* trace = nullptr;
  SnapshotWriter* snapshots = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< for error messages; absent in rank 0
  caf::actor supervisor;
  caf::actor bridge;  ///< judges failed writes
};

class SectionReplica : public caf::event_based_actor {
 public:
  SectionReplica(caf::actor_config& config, ReplicaSpec spec);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.section_replica"; }
  void on_exit() override;

 private:
  using Work = ReplicaLane::Work;
  using Job = std::function<WorkDone()>;
  [[nodiscard]] const GraphNode& node() const { return spec_.graph->node(spec_.section); }
  [[nodiscard]] ReplicaAddress address() const;
  [[nodiscard]] bool trained() const { return node().trained(); }

  void connect(const Directory& directory);
  void pump();
  void start(const Work& work);
  void start_pass(const Work& work, bool forward, bool backward);
  void start_mark(const LaneMark& mark);
  void continue_step();
  void clip();
  void start_step(double sum_of_squares);
  void start_snapshot(const LaneMark& mark);
  void submit(std::string_view label, TraceCategory category, Job job);
  void submit(TracedWork traced, Job job, std::chrono::nanoseconds lasts = {});
  /// What the passes of `work` took: as measured, or as emulated.
  [[nodiscard]] PassCost time_of(const Work& work, PassCost measured) const;
  void phase_pass_done(const MicroBatchPlan& plan, ReplicaLane::Kind kind);
  [[nodiscard]] std::chrono::nanoseconds emulated_time(const MicroBatchPlan& plan, bool forward, bool backward) const;
  void done(WorkDone result);
  void pass_done();
  void finish_mark();
  ReplicaPorts::Arrived arrived();
  void check(const Status& status);
  void fail(const std::string& message);
  [[nodiscard]] std::string where() const;
  [[nodiscard]] std::string waits_for() const;
  void note_wait();

  ReplicaSpec spec_;
  ReplicaPorts ports_;
  ReplicaReduction reduction_;
  ReplicaLane lane_;
  caf::actor coordinator_;
  ReplicaTrace trace_;

  // What is on the device, or between two parts of a mark.
  enum class Stage : std::uint8_t { idle, pass, summing, copying, norm, clipping, stepping, snapshot };
  Stage stage_ = Stage::idle;
  Work work_;
  StepId step_;
  std::vector<SendBuffer> sending_;
  using Clock = std::chrono::steady_clock;
  PassLog passes_;
  double sum_of_squares_ = 0;
  bool have_norm_ = false;
  std::optional<NormTotal> norm_total_;  // the last one; of step_ when it came early
  bool failed_ = false;
  std::optional<TraceTime> idle_since_;
  std::string idle_reason_;
};

}  // namespace maestro
