// SPDX-License-Identifier: Apache-2.0
// How the processes of a job find each other before anything is built: every process except rank 0 joins rank 0 and
// waits until all have joined, or until it receives the reason why the job cannot begin. Versions of maestro differ in
// the content of Joining, never in the field numbers of this file, so two versions can always report that they differ.
namespace cpp maestro.rendezvous

struct Joining {
  1: required i64 rank
  2: required i64 processes
  3: required i64 pid
  4: required string host
  5: required i64 local_rank
  6: required string version
  7: required string token
  8: required string job
}

// The address of rank 0's control actors, for the processes of a job that begins.
struct JoinAccepted {
  1: required i64 epoch
  2: required string caf_host
  3: required i32 caf_port
  4: required string root_host_name
  5: required string secret
  6: required string shared_file
  7: optional string resume
  8: optional bool shared_memory
}

// Without `accepted`: not all processes have joined yet; call wait_for_all() again.
struct Answer {
  1: optional JoinAccepted accepted
}

exception Refused {
  1: required string reason
  // True: the job cannot begin, and every joined process receives the reason. False: only this process is refused.
  2: required bool for_all
}

service Rendezvous {
  // Called once on a connection, which the process keeps until the outcome: a joined process that disconnects ends the
  // start of the job.
  Answer join(1: Joining process) throws (1: Refused refused)
  // Called after `join`; answers within half a second.
  Answer wait_for_all() throws (1: Refused refused)
  // Called instead of `join`: the job cannot begin, for a reason that only this process sees.
  void withdraw(1: Joining process, 2: string reason) throws (1: Refused refused)
}
