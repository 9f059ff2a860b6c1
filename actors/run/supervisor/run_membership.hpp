// SPDX-License-Identifier: Apache-2.0
// The part that a process takes in its run, from the start to the end: which processes have reached which milestone,
// the action that is due when the last process arrives, and whether a loss or a failure still counts. Pure; the
// supervisor translates messages to calls.
//
// The phase of a process:
//   gathering   from construction: processes join rank 0 and introduce themselves
//   connecting  from listed(): the process connects to the processes of rank 0's list
//   wiring      from wired(): its actors and its transport connect to those of the directory
//   running     from the last Milestone::ready, on rank 0 alone; others stay in `wiring` until the run finishes
//   finishing   from finish(): processes send their summaries
//   settling    from lost() == LossVerdict::noted: survivors are queried about the loss
//   ended       from fail(), settle(), end(), the last Milestone::summarised, or lost() == LossVerdict::run_over
//
// RM-1 (processes counted): a milestone counts once per process; a repeated message, and a message of an id outside the
//       job, change nothing.
// RM-2 (last process): Tally::last is returned once per milestone, for the process that completes it, in whatever order
//       the processes arrive. Milestone::pinged awaits the list of processes too; listed() returns it if the list is
//       last.
// RM-3 (forward only): the phase never goes back.
// RM-4 (single end): at most one event ends the run here; afterwards no milestone counts, and no event returns an
//       action.
// RM-5 (ends in order): while the run finishes, the loss of a process that rank 0 holds the summary of is in order, and
//       at other processes the loss of any peer. The loss of rank 0 is then the end of the run: it has all
//       summaries.
// RM-6 (first loss): while a loss settles, failures and further losses are its consequences and do not count.
//       Milestones count: the last summary still ends the run in order.
// RM-7 (left): the run goes on without a process that has left: no milestone awaits or counts it, and its loss is
//       ignored, until its replacement comes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

enum class RunPhase : std::uint8_t { gathering, connecting, wiring, running, finishing, settling, ended };

/// Rank 0 counts all milestones but `pinged`, of all processes, itself included; the other processes count `pinged`, of
/// their peers: all but themselves and rank 0, to which they are connected by joining.
enum class Milestone : std::uint8_t {
  joined,      ///< its supervisor has reached rank 0's
  introduced,  ///< it is built; the last: rank 0 sends the list of processes
  pinged,      ///< a Ping has passed between it and this process; the last: this process reports `connected`
  connected,   ///< to all other processes; the last: rank 0 sends the directory
  ready,       ///< its replicas and its transport are connected; the last: training begins
  summarised   ///< its summary has arrived; the last: every process may exit
};

enum class Tally : std::uint8_t {
  ignored,  ///< repeated, of no process that counts, or after the end
  counted,  ///< others are awaited
  last      ///< the action of the milestone is due
};

enum class LossVerdict : std::uint8_t {
  ignored,   ///< in order, after the end, or a consequence of the loss that settles
  peer,      ///< rank 0 decides, if it loses the process too; else the connection of the two is broken
  run_over,  ///< rank 0 has ended in order, and so does this process
  noted      ///< the loss that the run fails with: it settles from now on
};

/// Not thread-safe; belongs to the supervisor.
class RunMembership {
 public:
  /// `hosts`: of each process that the job may have, by its id; the last `joining` of them are not there at the start.
  RunMembership(ProcessId process, std::vector<std::uint32_t> hosts, std::size_t joining = 0);

  // Events.

  /// A process has reached a milestone.
  Tally record(Milestone milestone, ProcessId process);
  /// The list of processes has arrived here. Returns `last` if all peers have pinged before, and `ignored` unless
  /// the phase is `gathering`.
  Tally listed();
  /// The directory has arrived here. Returns false, without effect, if it came before.
  bool wired();
  /// The run is over. Returns false, without effect, if the run is finishing or has ended here.
  bool finish();
  /// Rank 0 has all summaries.
  void end() { advance(RunPhase::ended); }
  /// A failure. Returns whether it decides the outcome; then the run has ended here.
  bool fail();
  /// A child of this process has ended as `how` describes. Returns whether that fails the run, which is the case before
  /// it runs; later the supervisor's connection to the child decides.
  bool child_ended(ProcessId child, std::string how);
  /// The connection to a process has ended, or it is silent.
  LossVerdict lost(ProcessId process);
  /// The process is lost, and the others take its placements. Returns false, without effect, unless the run is running
  /// (other processes than rank 0: unless its actors are connected).
  bool leave(ProcessId process);
  /// The process is not there when this process, a replacement itself, joins a running job.
  void miss(ProcessId process) { left_.insert(process); }
  /// The replacement of a process that has left is connected. Returns false, without effect, if the process has not
  /// left.
  bool come(ProcessId process) { return phase_ < RunPhase::finishing && left_.erase(process) > 0; }
  /// The reports about the loss are complete. Returns whether the loss decides the outcome; then the run has ended
  /// here.
  bool settle();

  // Queries, in every phase.

  [[nodiscard]] RunPhase phase() const { return phase_; }
  [[nodiscard]] bool is_root() const { return process_ == ProcessId(0); }
  /// The processes that the job may have.
  [[nodiscard]] std::size_t most_processes() const { return hosts_.size(); }
  /// The processes that are there, or are to come at the start.
  [[nodiscard]] std::size_t processes() const { return hosts_.size() - left_.size(); }
  /// The processes that have reached a milestone.
  [[nodiscard]] std::size_t count(Milestone milestone) const { return reached(milestone).size(); }
  /// Returns whether all processes that count for a milestone have reached it.
  [[nodiscard]] bool complete(Milestone milestone) const { return count(milestone) == awaited(milestone); }
  [[nodiscard]] bool on_this_host(ProcessId process) const;
  /// Returns whether this process prints the error: the lowest process of its host, the noted loss apart (SV-3).
  [[nodiscard]] bool prints() const;
  [[nodiscard]] bool has_left(ProcessId process) const { return left_.contains(process); }
  /// The process whose loss was noted, or nothing.
  [[nodiscard]] std::optional<ProcessId> loss() const { return loss_; }
  /// How a child of this process ended, or nothing.
  [[nodiscard]] std::optional<std::string> how_ended(ProcessId child) const;

 private:
  static constexpr std::size_t milestones = 6;

  [[nodiscard]] const std::set<ProcessId>& reached(Milestone milestone) const {
    return reached_[static_cast<std::size_t>(milestone)];
  }
  [[nodiscard]] std::size_t awaited(Milestone milestone) const;
  [[nodiscard]] bool counts(Milestone milestone, ProcessId process) const;
  void advance(RunPhase to);

  ProcessId process_;
  std::vector<std::uint32_t> hosts_;
  RunPhase phase_ = RunPhase::gathering;
  std::array<std::set<ProcessId>, milestones> reached_;
  std::set<ProcessId> left_;
  std::optional<ProcessId> loss_;
  std::map<ProcessId, std::string> how_ended_;
};

}  // namespace maestro
