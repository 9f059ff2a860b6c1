// SPDX-License-Identifier: Apache-2.0
// The messages between actors as plain structs; message_types.hpp registers them with CAF. Messages carry ids, plans
// and handles; tensors never travel in them. Types in section "local" hold reference-counted handles and stay inside a
// process.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actors/messages/memory_addresses.hpp"
#include "runtime/core/buffer.hpp"
#include "runtime/schedule/forward_replay.hpp"
#include "runtime/schedule/replica_lane.hpp"
#include "runtime/schedule/step_plan.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

// ---- start-up ----

/// To the supervisor of rank 0, from itself: the time for all processes to join is over.
struct StartTimeout {};
/// To the supervisor of rank 0: a process that the launcher of this host started has ended.
struct ChildEnded {
  ProcessId process;
  std::string how;     ///< "exit status 1", "signal 9"
  bool again = false;  ///< it is, or was, the replacement of a lost process
};
/// To the coordinator: all processes are connected, training begins.
struct Begin {};

// ---- work items and progress ----

struct MicroBatchOrder {
  MicroBatchPlan plan;
};
struct BoundaryOrder {
  StepBoundary mark;
};
/// Passes of this phase of a bulk-synchronous plan's group may run.
struct PhaseOpen {
  StepId step;
  std::uint32_t group = 0;
  std::uint32_t phase = 0;
};
/// A pass of a bulk-synchronous plan has ended.
struct PhasePassDone {
  StepId step;
  std::uint32_t group = 0;
  std::uint32_t phase = 0;
};
struct Metric {
  std::string name;
  double sum = 0;
  double weight = 0;
};
struct MicroBatchDone {
  SectionId section;
  ReplicaIndex replica;
  StepId step;
  Pass pass = Pass::train;
  std::uint32_t index = 0;
  std::int64_t samples = 0;
  std::vector<Metric> metrics;
  double forward_ms = 0;   ///< as measured on the device
  double backward_ms = 0;  ///< 0 without a backward pass
  double age_ms = 0;       ///< since the forward pass began
};
/// What the time of a replica went into since its last StepDone.
struct LaneTimes {
  double busy_ms = 0;                     ///< in passes
  double step_ms = 0;                     ///< at the end of steps: sums, optimizer, copies for checkpoints
  std::map<std::string, double> wait_ms;  ///< by the node waited for, or by what is missing (WaitKind, "device")
};
using SentBytes = std::map<Channel, std::uint64_t>;
/// Pieces that have arrived: the times from their leaving until they were written to another process. Pieces that were
/// handed over inside a process took none.
struct TransferTimes {
  double sum_ms = 0;
  std::uint64_t pieces = 0;
  TransferTimes& operator+=(const TransferTimes& more) {
    sum_ms += more.sum_ms;
    pieces += more.pieces;
    return *this;
  }
};
using ChannelTimes = std::map<Channel, TransferTimes>;
struct StepDone {
  SectionId section;
  ReplicaIndex replica;
  StepId step;
  Pass pass = Pass::train;
  double gradient_norm = 0;
  double lr = 0;
  LaneTimes times = {};
  SentBytes sent = {};  ///< likewise: of tensors, to other replicas
  ChannelTimes transfers = {};
};
/// A replica's sum of squares of the reduced gradient, for clipping by the norm over all sections, over the stages of a
/// section, or over replicas with sharded optimizer state; and for the guard, which may skip the step.
struct NormReport {
  SectionId section;
  ReplicaIndex replica;
  std::uint32_t reporters = 1;  ///< replicas of the section that report a partial sum each
  StepId step;
  double sum_of_squares = 0;
};
struct NormTotal {
  StepId step;
  double sum_of_squares = 0;             ///< the square of the norm that gradients are clipped by
  double sum_of_squares_of_section = 0;  ///< of the receiver's section, all stages
  bool skipped = false;                  ///< no section trains on the step
};
/// Cumulative: the receiver has released `released` sequences of its ring.
struct Credit {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;  ///< of the receiver
  std::uint32_t epoch = 0;
  std::uint64_t released = 0;
};

struct BatchRequest {
  StepId step;
  Pass pass = Pass::train;
};
struct BatchMetadata {
  StepId step;
  Pass pass = Pass::train;
  std::vector<SampleRef> samples;
  std::int64_t target_tokens = 0;
  std::vector<std::string> left_out;  ///< samples that could not be read, with the reason
};

/// The sender, a member of a reduction by NCCL, is ready for the next exchange.
struct ReductionReady {
  ReductionKind kind = ReductionKind::replicas;
  LayoutRank layout_rank;    ///< of sender and receiver
  std::uint32_t member = 0;  ///< the sender
};

// ---- checkpoints ----

struct StoredFile {
  std::string path;  ///< relative to the checkpoint
  std::uint64_t bytes = 0;
  std::string checksum;
};
struct SnapshotWritten {
  SectionId section;
  StepId step;
  bool shadow = false;  ///< of a checkpoint in memory
  std::vector<StoredFile> files;
};
struct CheckpointCommitted {
  StepId step;
  bool shadow = false;
  std::string path;
};

// ---- state after a loss ----

/// To a trained replica, after the loss of a process: it begins no work that changes its state any more. Answered with
/// StandsStill; from then on a snapshot's BoundaryOrder is carried out at once.
struct StandStill {};
struct StandsStill {
  SectionId section;
  ReplicaIndex replica;
  StepId step;         ///< its state is that after this step
  bool whole = false;  ///< it has the whole state: no other replica keeps a shard of it
};

// ---- ends ----

/// A write to peers, or an exchange with them, failed. Its cause may be the death of a process, which the supervisor
/// learns of soon.
struct TransferBroken {
  std::string message;
};

/// An error; the first error that reaches a supervisor ends the run.
struct Failure {
  std::string message;
  bool may_follow_loss = false;  ///< the loss of a process may be its cause, as of a broken network (EP-5)
  bool service_lost = false;     ///< a process that serves a section is lost: the run may begin again (ServiceLost)
  bool goes_back = false;        ///< the run begins again before a spike (PR-4)
};
/// A signal, or `maestro stop`: the run ends in order. Sent by any process to its supervisor and on to that of rank 0.
struct Interrupt {};
/// The run is over: every process sends its summary and ends.
struct Finish {};
/// Rank 0 has all summaries: every process may exit.
struct Shutdown {};
struct ProcessSummary {
  ProcessId process;
  double max_rss_mb = 0;
  std::string provider;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::map<std::string, double> device_mb = {};  ///< peaks: by GPU, of its sections; by rank_text(), of its arenas
};
/// To a replica: requests its ReplicaAddress.
struct AddressRequest {};
/// To a replica: requests its state; answered with WaitingFor.
struct StatusRequest {};
enum class WaitKind : std::uint8_t {
  nothing,     ///< the replica is busy
  work,        ///< a work item: all announced work is done
  input,       ///< rows of an input
  gradient,    ///< rows of the gradient of an output
  credit,      ///< a free slot of a receiver
  buffer,      ///< a send buffer of its own, which a receiver still reads
  phase,       ///< lanes of its group in a bulk-synchronous plan
  reduction,   ///< gradients of the section's other replicas
  norm,        ///< gradient norms of the sections that are clipped together
  parameters,  ///< values that other replicas have stepped
  moments      ///< optimizer state of other replicas, for a checkpoint
};
/// State of a replica: the work it does or the event it waits for. wait_text() formats it.
struct WaitingFor {
  SectionId section;
  ReplicaIndex replica;
  WaitKind kind = WaitKind::nothing;
  std::string doing;                ///< when busy: "forward", "backward", "forward_backward", "step", "checkpoint"
  StepId step;                      ///< of the work, awaited or under way
  std::uint32_t micro_batch = 0;    ///< as `step`
  std::uint64_t sample = 0;         ///< first sample of the micro-batch that waits
  std::string port;                 ///< of an input or gradient: a port of this replica
  SectionId peer;                   ///< awaited section; its own when busy
  std::vector<ReplicaIndex> peers;  ///< replicas of that section
  std::uint64_t events = 0;         ///< progress messages handled by the replica
};

// ---- moves of placements; in actors/messages/addresses.hpp those with addresses ----

/// A process's replicas at the new placements are connected.
struct PlacementsReady {
  Epoch epoch;
  ProcessId process;
};

/// Rank 0 to the supervisors of a start that another start follows (SV-13); the answer of a process that takes part.
struct StartAgain {};

/// Rank 0 to every supervisor: the process is lost, and no placements move.
struct ProcessGone {
  ProcessId process;
  bool awaited = false;  ///< its placements wait for its replacement
};

// ---- local ----

/// To the supervisor of rank 0: a lost process has not started again.
struct ReplacementFailed {
  ProcessId process;
  std::string problem;
};
/// To the supervisor of rank 0: a process is to join the run, or to leave it. Answered with PlacementAnswer.
struct JoinWanted {
  std::string section;
};
struct LeaveWanted {
  ProcessId process;
};
struct PlacementAnswer {
  ProcessId process;
  std::string text;     ///< a line: what follows
  std::string refusal;  ///< a line; empty: granted
};
/// To the supervisor of a process that has left: it ends in order.
struct Dismissed {};
/// To a replica of a repeatable section: another actor takes its placement. The replica finishes its pass and does
/// nothing more.
struct Retire {};
/// To a retired replica, from itself: its memory may be free.
struct MemoryDue {};
/// To any other replica: the senders of repeatable sections begin anew, under this epoch. Answered with InputsRenewed.
struct RenewInputs {
  Epoch epoch;
};
/// To the coordinator: a process is lost, and its placements move.
struct PlacementsLost {
  std::string cause;  ///< a line
};

/// To the coordinator: a process is lost. If the others hold the state after the last finished step, the coordinator
/// has it written as a checkpoint, then answers with Rescued.
struct Rescue {
  ProcessId lost;
};
struct Rescued {};

/// To the planner: requests placement and order of the batch's micro-batches. Answered with StepPlanned.
struct PlanStep {
  BatchMetadata batch;
  std::vector<MeasuredPass> measured;  ///< since the last request
  std::vector<MeasuredTransfer> transfers = {};
};
struct StepPlanned {
  std::shared_ptr<PlannedStep> planned;
  double planning_ms = 0;
};

/// Rows passed by reference inside a process.
struct PieceHandOver {
  Channel channel;
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  std::int64_t target_row = 0;
  std::int64_t rows = 0;
  ReplicaIndex sender;
  LayoutRank layout_rank;  ///< of the receiver
  Epoch epoch;             ///< of the sender
  Buffer buffer;
  std::size_t offset = 0;  ///< bytes into the buffer
};
/// A gradient part or a shard's sum, read in place from the memory of a replica in the same process until ShardRead is
/// sent back.
struct ShardHandOver {
  ReductionKind kind = ReductionKind::replicas;
  std::uint64_t round = 0;
  bool sum = false;
  std::uint32_t sender = 0;  ///< among the members of the reduction
  LayoutRank layout_rank;    ///< of sender and receiver
  std::span<const float> values;
};
struct ShardRead {
  ReductionKind kind = ReductionKind::replicas;
  std::uint64_t round = 0;
  LayoutRank layout_rank;
};
/// A remote write has completed in a ring of this replica.
struct RingEvent {
  std::uint32_t immediate = 0;
};
struct WriteFinished {
  std::uint64_t cookie = 0;
};
struct WriteBroken {
  std::uint64_t cookie = 0;
  std::string message;
};
/// A copy that PieceWriter began has ended.
struct CopyFinished {
  std::uint64_t cookie = 0;
  std::string failure;  ///< a single line; empty: none
};
/// A send buffer has returned to its pool.
struct BufferFree {};
/// The device thread has finished a work item of the lane.
struct WorkDone {
  LayoutRank layout_rank;
  std::vector<Metric> metrics;
  double sum_of_squares = 0;
  double lr = 0;
  double forward_ms = 0;
  double backward_ms = 0;
};

}  // namespace maestro
