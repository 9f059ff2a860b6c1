// SPDX-License-Identifier: Apache-2.0
// A process's state in its run, from the start to the end: the milestones that processes have reached, the action that
// is due after the last process, and whether a loss or a failure still counts. Pure; the supervisor translates messages
// to calls.
//
// The phase of a process:
//   gathering   from construction: processes join rank 0 and introduce themselves
//   connecting  from listed(): the process connects to the processes in rank 0's list
//   wiring      from wired(): its actors and its transport connect to the actors and memory in the directory
//   running     from the last Milestone::ready, only on rank 0; others remain in `wiring` until the run finishes
//   finishing   from finish(): processes send their summaries
//   settling    from lost() == LossVerdict::noted: survivors are queried about the loss
//   ended       from fail(), settle(), end(), the last Milestone::summarised, or lost() == LossVerdict::run_over
//
// RM-1 (processes counted): a milestone counts once per process; a repeated message, or one from an id outside the job,
//       has no effect.
// RM-2 (last process): Tally::last is returned once per milestone, for the process that completes it, whatever the
//       order of arrival. Milestone::pinged also awaits the list of processes; listed() returns Tally::last if the list
//       comes last.
// RM-3 (forward only): the phase never goes back.
// RM-4 (single end): at most one event ends the run in this process; afterwards milestones do not count, and events
//       return no action.
// RM-5 (ends in order): while the run finishes, rank 0 accepts the loss of a process whose summary it has, and other
//       processes accept the loss of any peer. For them the loss of rank 0 is the end of the run: rank 0 has all
//       summaries.
// RM-6 (first loss): while a loss settles, failures and further losses count as its consequences and are ignored.
//       Milestones count: the last summary still ends the run in order.
// RM-7 (left): the run continues without a process that has left: milestones do not count it, and its loss is ignored,
//       until its replacement process is connected.
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

/// Rank 0 counts every milestone except `pinged`, for all processes including itself. The other processes count only
/// `pinged`, for their peers: all processes except themselves and rank 0, to which joining has connected them. After
/// "last": the action when the last process has reached the milestone.
enum class Milestone : std::uint8_t {
  joined,      ///< the process's supervisor has reached rank 0's
  introduced,  ///< the process is built; last: rank 0 sends the list of processes
  pinged,      ///< a Ping has passed between the process and this one; last: this process reports `connected`
  connected,   ///< the process is connected to all others; last: rank 0 sends the directory
  ready,       ///< the process's replicas and transport are connected; last: training begins
  summarised   ///< the process's summary has arrived; last: every process may exit
};

enum class Tally : std::uint8_t {
  ignored,  ///< repeated, from a process that does not count, or after the end
  counted,  ///< others are awaited
  last      ///< the action of the milestone is due
};

enum class LossVerdict : std::uint8_t {
  ignored,   ///< in order, after the end, or a consequence of the settling loss
  peer,      ///< rank 0 decides if it loses the process too; otherwise only this connection is broken
  run_over,  ///< rank 0 has ended in order, and this process ends too
  noted      ///< the run fails because of this loss: it settles from now on
};

/// Not thread-safe; belongs to the supervisor.
class RunMembership {
 public:
  /// `hosts`: host of each process that the job may have, by id. The last `joining` processes are absent at the start.
  RunMembership(ProcessId process, std::vector<std::uint32_t> hosts, std::size_t joining = 0);

  // Events.

  /// Counts a process that has reached a milestone.
  Tally record(Milestone milestone, ProcessId process);
  /// Records that the list of processes has arrived. Returns `last` if all peers have pinged before, and `ignored`
  /// unless the phase is `gathering`.
  Tally listed();
  /// Records that the directory has arrived. Returns false, without effect, if it had arrived before.
  bool wired();
  /// Begins to finish. Returns false, without effect, if the run is finishing or has ended in this process.
  bool finish();
  /// Ends the run, since rank 0 has all summaries.
  void end() { advance(RunPhase::ended); }
  /// Records a failure. Returns whether it decides the outcome; if so, the run has ended in this process.
  bool fail();
  /// Records that a child of this process has ended as `how` describes. Returns true if this fails the run: before the
  /// phase `running`. Later the supervisor's connection to the child decides.
  bool child_ended(ProcessId child, std::string how);
  /// Records that the connection to a process has ended or is silent.
  LossVerdict lost(ProcessId process);
  /// Records that a process has left, since the others take its placements. Returns false, without effect, unless the
  /// phase is `running` (`wiring` on other processes than rank 0).
  bool leave(ProcessId process);
  /// Records that a process is absent while this process, which is a replacement, joins the running job.
  void miss(ProcessId process) { left_.insert(process); }
  /// Records that the replacement process for one that has left is connected. Returns false, without effect, if that
  /// process has not left.
  bool come(ProcessId process) { return phase_ < RunPhase::finishing && left_.erase(process) > 0; }
  /// Records that the reports about the loss are complete. Returns whether the loss decides the outcome; if so, the run
  /// has ended in this process.
  bool settle();

  // Queries, possible in every phase.

  [[nodiscard]] RunPhase phase() const { return phase_; }
  [[nodiscard]] bool is_root() const { return process_ == ProcessId(0); }
  /// Returns the maximum number of processes.
  [[nodiscard]] std::size_t most_processes() const { return hosts_.size(); }
  /// Returns the number of present processes, including processes that are still expected at the start.
  [[nodiscard]] std::size_t processes() const { return hosts_.size() - left_.size(); }
  /// Returns the number of processes that have reached a milestone.
  [[nodiscard]] std::size_t count(Milestone milestone) const { return reached(milestone).size(); }
  /// Returns whether all processes that count for a milestone have reached it.
  [[nodiscard]] bool complete(Milestone milestone) const { return count(milestone) == awaited(milestone); }
  [[nodiscard]] bool on_this_host(ProcessId process) const;
  /// Returns whether this process prints the error: it is the lowest on its host except the lost process (SV-3).
  [[nodiscard]] bool prints() const;
  [[nodiscard]] bool has_left(ProcessId process) const { return left_.contains(process); }
  /// Returns the process whose loss was noted, or nothing.
  [[nodiscard]] std::optional<ProcessId> loss() const { return loss_; }
  /// Returns how a child of this process ended, or nothing.
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
