// SPDX-License-Identifier: Apache-2.0
/**
 * The control service of a maestro run: watch it and steer it while it trains.
 *
 * Served by the coordinator's process, by default on a local socket of its user; see docs/control-service.md. The wire
 * is TFramedTransport with strict TBinaryProtocol, over TLS with mutual certificates where the address is not of
 * this host. Every call takes the job's token first; on a local socket it is not looked at.
 *
 * Numbers that are not known are left out (optional fields). Times are in the units that their names end in.
 */
namespace cpp maestro.control
namespace py maestro_control

/** The call cannot be done; the text is one line. */
exception Refused {
  1: string reason
}

enum State {
  STARTING = 0,   // processes are still connecting
  RUNNING = 1,
  PAUSING = 2,    // no further unit is announced; those under way end
  PAUSED = 3,
  STOPPING = 4,   // as after one Ctrl-C: announced steps end, then a checkpoint
  FINISHED = 5
}

enum UnitKind { TRAIN = 0, VALIDATE = 1, CHECKPOINT = 2 }

/** A part of a run that is announced as a whole. */
struct Unit {
  1: UnitKind kind
  2: i64 step
}

/** Of the last step that a section has finished. */
struct SectionFigures {
  1: string name
  2: i32 replicas
  3: bool trained
  4: i64 step                        // 0: none yet
  5: map<string, double> metrics     // loss, grad_norm, lr, step_ms, ...; empty where the section has none
  6: optional double utilization     // of the last complete step: share of it that the section's lanes were busy
}

enum ReplicaState { BUSY = 0, IDLE = 1, NO_ANSWER = 2 }

enum WaitKind {
  TOKEN = 1,        // it has done all that was announced: nothing is asked of it
  INPUT = 2,        // rows of an input
  GRADIENT = 3,     // rows of the gradient of an output
  CREDIT = 4,       // a free slot of a receiver
  BUFFER = 5,       // a send buffer of its own, which a receiver still reads
  PHASE = 6,        // lanes of its group in a bulk-synchronous plan
  REDUCTION = 7,    // gradients of the section's other replicas
  NORM = 8,         // gradient norms of the sections that are clipped together
  PARAMETERS = 9,   // values that other replicas have stepped
  MOMENTS = 10      // optimizer state of other replicas, for a checkpoint
}

/** What an idle replica waits for, and from whom. */
struct Wait {
  1: WaitKind kind
  2: string section          // whom it waits for; for TOKEN the coordinator, and empty
  3: list<i32> replicas      // of that section
  4: optional i64 sample     // the first of the micro-batch that waits
  5: i64 step
  6: list<i32> processes     // that host those replicas
  7: string text             // the same in words
}

struct ReplicaFigures {
  1: string section
  2: i32 replica
  3: i32 process
  4: string host
  5: i64 pid
  6: list<string> devices
  7: ReplicaState state
  8: string doing            // when busy: forward, backward, forward_backward, step, checkpoint
  9: i64 step                // of what it does or waits for
  10: optional i32 micro_batch
  11: optional Wait wait     // when idle
}

struct Status {
  1: State state
  2: string job
  3: i64 step                      // the last one that is complete
  4: i64 steps                     // of the whole run
  5: double epoch                  // of the training data
  6: double elapsed_s              // since the first step began
  7: double samples_per_s          // over the last steps
  8: i64 samples_trained
  9: i64 tokens_trained
  10: optional double loss
  11: list<Unit> units             // announced and not complete, the oldest first
  12: list<SectionFigures> sections
  13: list<ReplicaFigures> replicas
  14: string checkpoint            // path of the last one, or empty
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
  5: i32 context
  6: i32 stage                     // of `stages` of a pipeline
  7: i32 stages
  8: i64 micro_batch               // samples at most
  9: i64 max_in_flight
  10: string precision
  11: list<PlannedReplica> replicas
}

struct PlannedEdge {
  1: string from_section
  2: string from_port
  3: string to_section
  4: string to_port
  5: bool gradient                 // one travels back
  6: i64 columns
  7: string dtype
}

struct Plan {
  1: string job
  2: string policy
  3: i64 slots                     // per edge and consumer replica
  4: i64 global_batch
  5: list<PlannedSection> sections
  6: list<PlannedEdge> edges
  7: i64 step                      // whose plan the next two figures are of
  8: optional double planned_ms    // its makespan, as the policy reckons
  9: optional double lower_bound_ms  // no schedule of that step can be shorter
  10: string effective_job         // TOML, all overrides included
}

/** One step, or one validation, of one section. */
struct Row {
  1: string section
  2: i64 step
  3: map<string, double> metrics
}

struct Metrics {
  1: list<Row> steps
  2: list<Row> validations
  3: i64 next_step_row             // to ask for what has come since
  4: i64 next_validation_row
}

struct Checkpoint {
  1: i64 step
  2: string path
}

struct Standing {
  1: State state
  2: i64 step                      // the last one that is complete
}

service Control {
  /** Within 50 ms also at full speed: a replica that does not answer in time is shown so. */
  Status status(1: string token) throws (1: Refused refused)
  Plan plan(1: string token) throws (1: Refused refused)
  /** Rows from these numbers on, in the order in which they came about, at most `most` (1 to 10000) of either kind.
      A negative number counts from the end: -5 are the last five. */
  Metrics metrics(1: string token, 2: i64 first_step_row, 3: i64 first_validation_row, 4: i32 most)
      throws (1: Refused refused)
  /** Makes one of the last announced step and answers when it is committed, also while the run is paused. */
  Checkpoint checkpoint(1: string token) throws (1: Refused refused)
  /** Announces no further unit; answers when the run stands still, or PAUSING when that takes longer than 30 s. */
  Standing pause(1: string token) throws (1: Refused refused)
  Standing resume(1: string token) throws (1: Refused refused)
  /** As one Ctrl-C, also while paused. Answers at once. */
  Standing stop(1: string token) throws (1: Refused refused)
}
