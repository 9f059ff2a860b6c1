// SPDX-License-Identifier: Apache-2.0
/**
 * The control service of a maestro run: watch and control it while it trains.
 *
 * The coordinator's process serves it, by default on its user's local socket; see docs/control-service.md. The wire is
 * TFramedTransport with strict TBinaryProtocol, over TLS with mutual certificates if the address is not on this host.
 * The first argument of every call is the job's token; a local socket ignores it.
 *
 * Unknown numbers are omitted (optional fields). The name of a time ends in its unit. Shares of time are
 * from 0 to 1, by the clock, over the last 10 to 20 steps.
 */
namespace cpp maestro.control
namespace py maestro_control

/** Refuses the call; the reason is a single line. */
exception Refused {
  1: string reason
}

enum State {
  STARTING = 0,   // processes are still connecting
  RUNNING = 1,
  PAUSING = 2,    // no further unit is announced; announced units end
  PAUSED = 3,
  STOPPING = 4,   // announced steps end, then a checkpoint is written; Ctrl-C does the same
  FINISHED = 5
}

enum UnitKind { TRAIN = 0, VALIDATE = 1, CHECKPOINT = 2, SHADOW = 3 }  // SHADOW: a checkpoint in memory

/** A step, a validation or a checkpoint. */
struct Unit {
  1: UnitKind kind
  2: i64 step
}

/** Metrics of the last step that a section has finished. */
struct SectionFigures {
  1: string name
  2: i32 replicas
  3: bool trained
  4: i64 step                        // 0: none yet
  5: map<string, double> metrics     // loss, grad_norm, lr, step_ms, ...; may be empty
  7: optional double busy            // share of the lanes' time in passes, over the last steps
}

enum ReplicaState { BUSY = 0, IDLE = 1, NO_ANSWER = 2 }

enum WaitKind {
  WORK = 1,         // a work item of the coordinator: all announced work is done
  INPUT = 2,        // an input's rows
  GRADIENT = 3,     // a gradient's rows
  CREDIT = 4,       // a free slot in a receiver's ring
  BUFFER = 5,       // a send buffer that a receiver still reads
  PHASE = 6,        // lanes of its group in a bulk-synchronous plan
  REDUCTION = 7,    // gradients of the section's other replicas
  NORM = 8,         // gradient norms of the sections that are clipped together
  PARAMETERS = 9,   // values that other replicas have updated
  MOMENTS = 10,     // optimizer state of other replicas, for a checkpoint
  VERSION = 11,     // weights for its prompts, of the section that trains them
  PROMPTS = 12,     // prompts to continue
  TURN = 13         // a turn on a device that other replicas use
}

/** The event that an idle replica waits for, and its sender. */
struct Wait {
  1: WaitKind kind
  2: string section          // awaited section; empty for WORK, which the coordinator sends
  3: list<i32> replicas      // awaited replicas of that section
  4: optional i64 sample     // first sample of the waiting micro-batch
  5: i64 step
  6: list<i32> processes     // processes of these replicas
  7: string text             // all of this as text
}

struct ReplicaFigures {
  1: string section
  2: i32 replica
  3: i32 process
  4: string host
  5: i64 pid
  6: list<string> devices
  7: ReplicaState state
  8: string doing            // if busy: forward, backward, forward_backward, step, checkpoint
  9: i64 step                // step of the current or awaited work
  10: optional i32 micro_batch
  11: optional Wait wait     // if idle
  12: optional double busy   // share of the lane's time in passes, over the last steps
}

/** A device of a process. */
struct DeviceFigures {
  1: i32 process
  2: string host
  3: string device
  4: double busy             // share of its time that lanes on it spent in passes and at the end of steps, over the last
                             // steps; at most 1
}

struct Status {
  1: State state
  2: string job
  3: i64 step                      // the last complete step
  4: i64 steps                     // steps of the run
  5: double epoch                  // epochs of the training data
  6: double elapsed_s              // time since the first step began
  7: double samples_per_s          // speed over the last steps
  8: i64 samples_trained
  9: i64 tokens_trained
  10: optional double loss
  11: list<Unit> units             // announced units that are not complete, oldest first
  12: list<SectionFigures> sections
  13: list<ReplicaFigures> replicas
  14: string checkpoint            // path of the last checkpoint, or empty
  15: list<string> recoveries      // a line for each lost process after which the run continued
  16: list<DeviceFigures> devices  // devices with lanes that have ended a step
  17: optional double step_ms      // median time from the end of a step to the end of the next, over the last steps
  18: optional double step_time_over_bound  // step_ms over the median of the least makespans of a step by itself
  19: optional i64 stops_after     // of a run that stops early: the last announced step, after which it ends
  20: string stage                 // of a job with stages: "stage 2 of 3: steps 501 to 4500, trains llm"; or empty
}

struct PlannedReplica {
  1: i32 replica
  2: i32 process
  3: string host
  4: list<string> devices
}

struct PlannedSection {
  1: string name
  2: string mode                   // source, forward_only, forward_backward
  3: bool trained
  4: i32 tensor
  5: i32 context                   // of the widest replica; each has context = its devices / tensor
  6: i32 stage                     // stage of a pipeline with `stages` stages
  7: i32 stages
  8: i64 micro_batch               // largest number of samples
  9: i64 max_in_flight
  10: string precision
  11: list<PlannedReplica> replicas
}

struct PlannedEdge {
  1: string from_section
  2: string from_port
  3: string to_section
  4: string to_port
  5: bool gradient                 // a gradient is sent back
  6: i64 columns
  7: string dtype
}

struct Plan {
  1: string job
  2: string policy
  3: i64 slots                     // slots per edge and consumer replica
  4: i64 global_batch
  5: list<PlannedSection> sections
  6: list<PlannedEdge> edges
  7: i64 step                      // step of the next two figures
  8: optional double planned_ms    // its makespan by the policy's estimate
  9: optional double lower_bound_ms  // lower bound of its makespan for any schedule
  10: string effective_job         // TOML with all overrides
}

/** A section's step or validation. */
struct Row {
  1: string section
  2: i64 step
  3: map<string, double> metrics
}

struct Metrics {
  1: list<Row> steps
  2: list<Row> validations
  3: i64 next_step_row             // first row of the next call
  4: i64 next_validation_row
  5: i64 first_step_row            // first row in `steps`; later than requested if only the record has earlier rows
  6: i64 first_validation_row      // first row in `validations`
}

struct Checkpoint {
  1: i64 step
  2: string path
}

struct Standing {
  1: State state
  2: i64 step                      // the last complete step; if STOPPING, the last announced one, after which the run
                                   // ends
}

/** How a process joins: it executes `maestro` with these arguments, in this folder, with these variables added to its
    environment, on the host of the call to join(), within the job's start_timeout_s. */
struct JoinTerms {
  1: i32 process
  2: list<string> command
  3: list<string> variables        // NAME=value
  4: string folder
}

/** A process that leaves. */
struct Leaving {
  1: i32 process
  2: string text                   // new places of its replicas
}

service Control {
  /** Answers within 50 ms, also at full speed: a replica that does not answer in time has the state NO_ANSWER. */
  Status status(1: string token) throws (1: Refused refused)
  Plan plan(1: string token) throws (1: Refused refused)
  /** Returns rows beginning with these numbers, in the order of their creation, at most `most` (1 to 10000) per kind. A
      negative number counts from the end: -5 returns the last five. */
  Metrics metrics(1: string token, 2: i64 first_step_row, 3: i64 first_validation_row, 4: i32 most)
      throws (1: Refused refused)
  /** Writes a checkpoint of the last announced step and answers when it is committed, also while the run is paused. */
  Checkpoint checkpoint(1: string token) throws (1: Refused refused)
  /** Stops announcing units; answers when the run stands still, or PAUSING if that takes longer than 30 s. */
  Standing pause(1: string token) throws (1: Refused refused)
  Standing resume(1: string token) throws (1: Refused refused)
  /** Makes room for a process that takes over replicas of a section with replicas = {least, most}; see `maestro join`.
      `devices`: "cpu:2,cpu:3", or empty for the least used; `host`: the name of its host. */
  JoinTerms join(1: string token, 2: string section, 3: string devices, 4: string host) throws (1: Refused refused)
  /** Moves the replicas of a process to others; then the process ends. */
  Leaving leave(1: string token, 2: i32 process) throws (1: Refused refused)

  /** Stops the run like Ctrl-C, also while paused. Answers at once. */
  Standing stop(1: string token) throws (1: Refused refused)
}
