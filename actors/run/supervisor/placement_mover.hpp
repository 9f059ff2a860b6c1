// SPDX-License-Identifier: Apache-2.0
// Moves placements between the processes of a run, on rank 0: after a loss (SV-8), to the replacement of a lost process
// (SV-9), to a process that joins, and from a process that leaves (SV-10). Each process carries out its part of a move
// (OwnReplicas); PlacementChange counts the answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/job/placements.hpp"
#include "actors/run/supervisor/placement_change.hpp"
#include "actors/run/supervisor/replacement_queue.hpp"
#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// To the supervisor itself: placements should have moved by now.
struct MoveTimeout {
  Epoch epoch;
};

/// Belongs to the supervisor; the run must outlive it. On other processes than rank 0 nothing moves.
class PlacementMover {
 public:
  explicit PlacementMover(SupervisedRun& run) : run_(run) {}

  /// All processes are connected: their placements are their home.
  void begin() { home_ = placements_of(run_.directory); }
  /// Moves the placements of a lost process, or has the others wait for its replacement. Returns false if neither can
  /// be.
  bool move_placements_of(const ProcessInfo& lost);
  [[nodiscard]] bool under_way() const { return change_.under_way(); }
  /// Returns whether placements have moved after a loss.
  [[nodiscard]] bool moved_after_loss() const { return moves_ > 0; }
  void taken(const PlacementsTaken& answer);
  void ready(const PlacementsReady& answer);
  void timed_out(const MoveTimeout& move);

  // Replacements.

  [[nodiscard]] bool is_replacement(ProcessId process) const { return queue_.is_current(process); }
  /// The replacement is built.
  void introduced(const ProcessInfo& info);
  /// The replacement is connected to all others.
  void connected();
  /// The replacement does not come.
  void failed(const ReplacementFailed& failure);
  /// The run is over: a replacement without placements is not awaited.
  void leave_out_replacement();

  // Processes that join and leave.

  /// Returns why no process can join or leave now, a line; empty: it can.
  [[nodiscard]] std::string why_nothing_moves() const;
  PlacementAnswer let_join(const JoinWanted& wanted);
  PlacementAnswer let_leave(const LeaveWanted& wanted);

  void clear();

 private:
  bool wait_for_replacement_of(const ProcessInfo& lost);
  void note_loss(const ProcessInfo& lost, const std::string& what_follows);
  void move(const MovePlacements& moves, Directory directory);
  /// Returns the directory without a process.
  [[nodiscard]] Directory without(ProcessId process) const;
  /// Informs all processes that one is gone.
  void report_gone(const ProcessGone& gone);
  void start_next();
  /// Moves placements to the replacement, once it is connected and no other placements move.
  void place_replacement();

  SupervisedRun& run_;
  PlacementChange change_;
  std::size_t moves_ = 0;         // after losses
  std::uint32_t generation_ = 0;  // of all moves
  std::string reason_;            // of the last move
  std::vector<Placement> home_;   // the placements at the start
  ReplacementQueue queue_;
  caf::actor leaver_;  // a supervisor, while its placements move
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::MoveTimeout)
