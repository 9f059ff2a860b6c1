// SPDX-License-Identifier: Apache-2.0
// How the processes of a job find each other before anything is built: every process but rank 0 joins rank 0 and waits
// there until all have come, or until it is told why the job cannot begin. Versions of maestro differ by what JoinRequest
// says, never by this file's field numbers: they stay, so that two versions can tell each other that they differ.
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

// Where the control actors of rank 0 listen.
struct Meeting {
  1: required i64 epoch
  2: required string caf_host
  3: required i32 caf_port
  4: required string root_host_name
  5: required string secret
  6: required string shared_file
}

// Without a meeting: not all processes have come yet, ask again.
struct Answer {
  1: optional Meeting meeting
}

exception Refused {
  1: required string reason
  // The whole job cannot begin, and every process that has joined is told so; else only this process is refused.
  2: required bool for_all
}

service Rendezvous {
  // Once on a connection, which the process then keeps until it has an answer: a process that has joined and goes ends
  // the start of the job.
  Answer join(1: Joining process) throws (1: Refused refused)
  // After `join`; answers at the latest after half a second.
  Answer wait_for_all() throws (1: Refused refused)
  // Instead of `join`: the job cannot begin, for a reason that only this process knows.
  void withdraw(1: Joining process, 2: string reason) throws (1: Refused refused)
}
