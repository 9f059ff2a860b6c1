// SPDX-License-Identifier: Apache-2.0
// The messages between actors as plain structs; message_types.hpp registers them with CAF. Messages contain ids, plans
// and handles, never tensors. Types in part "local" hold reference-counted handles and stay inside a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/messages/memory_addresses.hpp"
#include "runtime/core/buffer.hpp"
#include "runtime/core/gradient_wire.hpp"
#include "runtime/schedule/forward_replay.hpp"
#include "runtime/schedule/replica_lane.hpp"
#include "runtime/schedule/step_plan.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

// ---- start-up ----

/// To the supervisor of rank 0, from itself: the time limit for all processes to join has passed.
struct StartTimeout {};
/// To the supervisor of rank 0: a process that this host's launcher started has ended.
struct ChildEnded {
  ProcessId process;
  std::string how;     ///< "exit status 1", "signal 9"
  bool again = false;  ///< it was started again for a lost process
};
/// To the coordinator: all processes are connected, training begins.
struct Begin {};

// ---- work items and progress ----

/// All micro-batches that a step has for a replica.
struct MicroBatchOrder {
  std::vector<MicroBatchPlan> plans;
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
  double forward_ms = 0;   ///< time measured on the device
  double backward_ms = 0;  ///< 0 without a backward pass
  double age_ms = 0;       ///< time since the forward pass began
};
/// A replica's times since its last StepDone.
struct LaneTimes {
  double busy_ms = 0;                     ///< time in passes
  double step_end_ms = 0;                 ///< device time at the end of steps: sums of gradients, norm, optimizer
  std::map<std::string, double> wait_ms;  ///< other times, by awaited node or by reason: WaitKind; "device", for which
                                          ///< other lanes work; "checkpoint", for which the state is copied
};
using SentBytes = std::map<Channel, std::uint64_t>;
/// Times of arrived pieces, from sending until they were written to another process; zero for pieces that were handed
/// over inside a process.
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
  std::vector<Metric> metrics = {};  ///< figures that the step has changed
  LaneTimes times = {};
  SentBytes sent = {};  ///< bytes of tensors sent to other replicas since the last StepDone
  ChannelTimes transfers = {};
  WireError wire = {};  ///< error of the gradients that the replica has encoded in the step
};
/// A replica's sum of squares of the reduced gradient, for the guard, which may skip the step, and for clipping by the
/// norm over all sections, over a section's stages, or over replicas with sharded optimizer state.
struct NormReport {
  SectionId section;
  ReplicaIndex replica;
  std::uint32_t reporters = 1;  ///< number of the section's replicas that report a partial sum each
  StepId step;
  double sum_of_squares = 0;
};
struct NormTotal {
  StepId step;
  double sum_of_squares = 0;             ///< squared norm for clipping the gradients
  double sum_of_squares_of_section = 0;  ///< sum over all stages of the receiver's section
  bool skipped = false;                  ///< no section trains on the step
};
/// The receiver has released `released` sequences of its ring so far.
struct Credit {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;  ///< receiving rank
  std::uint32_t epoch = 0;
  std::uint64_t released = 0;
};
/// Credits that go to the same sender.
struct Credits {
  std::vector<Credit> rings;
};

struct BatchRequest {
  StepId step;
  Pass pass = Pass::train;
};
/// The work of a generator's replica since its last SampleMade, or of several.
struct GenerationWork {
  double busy_ms = 0;  ///< time in jobs on its device, without `take_ms`
  double slot_ms = 0;  ///< busy time times the share of its slots with a sequence
  double take_ms = 0;  ///< time that it took to take over published weights
  GenerationWork& operator+=(const GenerationWork& more) {
    busy_ms += more.busy_ms;
    slot_ms += more.slot_ms;
    take_ms += more.take_ms;
    return *this;
  }
};
/// The samples of a step that generators made, or that were read back in their place.
struct MadeSamples {
  std::vector<std::int32_t> lengths;  ///< tokens of each completion, by position in the batch
  std::int64_t most_tokens = 0;       ///< limit of a length
  std::int64_t prompt_tokens = 0;     ///< tokens of all prompts
  std::int64_t stopped = 0;           ///< samples that a stop token ended
  StepId version;                     ///< step before which the trained section had the weights that made them
  std::uint64_t digest = 0;           ///< digest of all samples
  std::int64_t replicas = 0;          ///< number that made them; 0: they were read back
  GenerationWork work = {};           ///< sum over these replicas
  double rollout_ms = 0;              ///< time from the step's request to its last sample
};
struct BatchMetadata {
  StepId step;
  Pass pass = Pass::train;
  std::vector<SampleRef> samples;
  std::int64_t target_tokens = 0;
  std::vector<std::string> left_out;  ///< samples that could not be read, with the reason
  MadeSamples made = {};
  std::string shown;  ///< line of record/rollouts.jsonl about the last step's samples; empty: none
};

// ---- samples that generators make ----

/// To a generator: a prompt to continue with the weights that the sender of its register has before `version`.
/// Answered with SampleMade.
struct PromptOrder {
  StepId step;               ///< step that learns from the sample
  std::uint32_t number = 0;  ///< among the step's made samples
  StepId version;
  std::uint64_t seed = 0;
  std::int64_t most_tokens = 0;
  std::vector<std::int32_t> tokens;
};
struct SampleMade {
  SectionId section;
  ReplicaIndex replica;
  StepId step;
  std::uint32_t number = 0;
  std::vector<std::int32_t> tokens;      ///< the completion; a stop token, if there is one, is the last
  std::vector<float> log_probabilities;  ///< values for `tokens`, as they were drawn
  bool stopped = false;                  ///< whether a stop token ended it
  GenerationWork work = {};
};
/// To a generator that begins: no step reads versions before this one. Answered with GeneratorReady as soon as all
/// senders have promised the versions from it on; prompts follow.
struct VersionsFrom {
  StepId first;
};
struct VersionsPromised {};
struct GeneratorReady {};
/// To a generator: no open step reads the weights before earlier steps than this one.
struct VersionsOver {
  StepId before;
};
/// To the data source: a training step is over in all sections.
struct StepClosed {
  StepId step;
};
/// To the data source: the run stops before this step. Its batch is not wanted any more.
struct BatchWithdrawn {
  StepId step;
};

/// The sender, a member of a reduction by NCCL, is ready for the next exchange.
struct ReductionReady {
  ReductionKind kind = ReductionKind::replicas;
  LayoutRank layout_rank;    ///< rank of sender and receiver
  std::uint32_t member = 0;  ///< the sender
};

/// The sender writes this many bytes of rows (RowExchange) to the receiver's memory.
struct RowsSent {
  LayoutRank layout_rank;  ///< rank of sender and receiver
  std::uint64_t round = 0;
  bool stepped = false;      ///< new values, not gradients
  std::uint32_t member = 0;  ///< the sender
  std::uint64_t bytes = 0;
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
  bool shadow = false;  ///< part of a checkpoint in memory
  std::vector<StoredFile> files;
};
struct CheckpointCommitted {
  StepId step;
  bool shadow = false;
  std::string path;
};

// ---- state after a loss ----

/// To a trained replica after the loss of a process: begin no more work that changes the state. Answered with
/// StandsStill; afterwards a snapshot's BoundaryOrder is carried out at once.
struct StandStill {};
struct StandsStill {
  SectionId section;
  ReplicaIndex replica;
  StepId step;         ///< last step in its state
  bool whole = false;  ///< it has the complete state: other replicas keep no shard
};

// ---- ends ----

/// A write to peers, or an exchange with them, failed. The cause may be the death of a process, which the supervisor
/// will detect soon.
struct TransferBroken {
  std::string message;
};

/// An error; the first error that reaches a supervisor ends the run.
struct Failure {
  std::string message;
  bool may_follow_loss = false;  ///< a lost process may be the cause, as for a broken network (EP-5)
  bool service_lost = false;     ///< a process that serves a section is lost: the run may begin again (ServiceLost)
  bool goes_back = false;        ///< the run begins again before a spike (PR-4)
};
/// A signal, or `maestro stop`: the run ends in order. Sent by any process to its supervisor, and on to rank 0's.
struct Interrupt {
  std::string reason;  ///< a signal or its origin, for the console; empty: Ctrl-C or `maestro stop`
};
/// The run, or a stage of the job, is over: every process sends its summary and ends its part.
struct Finish {
  bool next_stage = false;  ///< the run goes on with the job's next stage
};
/// Rank 0 has all summaries: every process may exit.
struct Shutdown {};
struct ProcessSummary {
  ProcessId process;
  double max_rss_mb = 0;
  std::string provider;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::map<std::string, double> device_mb = {};  ///< peaks of sections by GPU, and of a rank's arenas by rank_text()
};
/// To a replica: requests its ReplicaAddress.
struct AddressRequest {};
/// To a replica: requests its state; answered with WaitingFor.
struct StatusRequest {};
enum class WaitKind : std::uint8_t {
  nothing,     ///< the replica is busy
  work,        ///< a work item: all announced work is done
  input,       ///< an input's rows
  gradient,    ///< a gradient's rows
  credit,      ///< a free slot in a receiver's ring
  buffer,      ///< a send buffer that a receiver still reads
  phase,       ///< lanes of its group in a bulk-synchronous plan
  reduction,   ///< gradients of the section's other replicas
  norm,        ///< gradient norms of the sections that are clipped together
  parameters,  ///< values that other replicas have updated
  moments,     ///< optimizer state of other replicas, for a checkpoint
  version,     ///< weights for its prompts, of the section that trains them
  prompts,     ///< prompts to continue
  turn         ///< a turn on a device that other replicas use
};
/// A replica's state: its current work or the event that it waits for. wait_text() formats it.
struct WaitingFor {
  SectionId section;
  ReplicaIndex replica;
  WaitKind kind = WaitKind::nothing;
  std::string doing;                ///< if busy: "forward", "backward", "forward_backward", "step", "checkpoint"
  StepId step;                      ///< step of the awaited or current work
  std::uint32_t micro_batch = 0;    ///< micro-batch of the awaited or current work
  std::uint64_t sample = 0;         ///< first sample of the waiting micro-batch
  std::string port;                 ///< port of the replica that awaits an input or gradient
  SectionId peer;                   ///< awaited section; the replica's section if busy
  std::vector<ReplicaIndex> peers;  ///< replicas of that section
  std::uint64_t events = 0;         ///< progress messages handled by the replica
};

// ---- moves of placements; moves with addresses are in actors/messages/addresses.hpp ----

/// A process' replicas at the new placements are connected.
struct PlacementsReady {
  Epoch epoch;
  ProcessId process;
};

/// Rank 0 to the supervisors before another start follows (SV-13), and the answer of a process that takes part in it.
struct StartAgain {};

/// Rank 0 to every supervisor: the process is lost, and no placements move.
struct ProcessGone {
  ProcessId process;
  bool awaited = false;  ///< the placements wait until the process is started again
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
  std::string text;     ///< consequence in a line
  std::string refusal;  ///< reason in a line; empty: granted
};
/// To the supervisor of a process that has left: it ends in order.
struct Dismissed {};
/// To a replica of a repeatable section: another actor takes its placement. The replica only finishes its pass.
struct Retire {};
/// To a retired replica, from itself: its memory may be unused now.
struct MemoryDue {};
/// To any other replica: the senders of repeatable sections begin anew, under this epoch. Answered with InputsRenewed.
struct RenewInputs {
  Epoch epoch;
};
/// To the coordinator: a process is lost, and its placements move.
struct PlacementsLost {
  std::string cause;  ///< cause in a line
};

/// To the coordinator: a process is lost. If the others hold the state after the last finished step, the coordinator
/// lets them write it as a checkpoint, then answers with Rescued.
struct Rescue {
  ProcessId lost;
};
struct Rescued {};

/// To the planner: requests placement and order of the batch's micro-batches. Answered with StepPlanned.
struct PlanStep {
  BatchMetadata batch;
  std::vector<MeasuredPass> measured;  ///< passes since the last request
  std::vector<MeasuredTransfer> transfers = {};
};
struct StepPlanned {
  std::shared_ptr<PlannedStep> planned;
  double planning_ms = 0;
};

/// Rows that are passed by reference inside a process.
struct PieceHandOver {
  Channel channel;
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  std::int64_t target_row = 0;
  std::int64_t rows = 0;
  ReplicaIndex sender;
  LayoutRank layout_rank;  ///< receiving rank
  Epoch epoch;             ///< epoch of the sender
  Buffer buffer;
  std::size_t offset = 0;  ///< offset in the buffer, in bytes
};
/// A part of the gradients or a shard's sum, encoded as the section's gradient_wire says, which a replica of the same
/// process reads in place until it answers with ShardRead.
struct ShardHandOver {
  ReductionKind kind = ReductionKind::replicas;
  std::uint64_t round = 0;
  bool sum = false;
  std::uint32_t sender = 0;  ///< sender's number among the reduction's members
  LayoutRank layout_rank;    ///< rank of sender and receiver
  std::span<const std::byte> bytes;
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
/// To a replica, from itself: a write to a generator broke a while ago. The generator's process was lost, or else the
/// network is broken.
struct WriteDoubted {
  WriteBroken broken;
};
/// A copy that PieceWriter began has ended.
struct CopyFinished {
  std::uint64_t cookie = 0;
  std::string failure;  ///< failure in a line; empty: none
};
/// A send buffer has returned to its pool.
struct BufferFree {};
/// The device thread has finished a job of the lane.
struct WorkDone {
  LayoutRank layout_rank;
  std::vector<Metric> metrics;
  double sum_of_squares = 0;
  double lr = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double device_ms = 0;  ///< time of the device from the job's begin to its end
};

}  // namespace maestro
