// SPDX-License-Identifier: Apache-2.0
// Moves placements between the processes of a run, on rank 0: after a loss (SV-8), to a replacement process (SV-9), to
// a process that joins, and from a process that leaves (SV-10). Each process carries out its part of a move
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

/// Message from the supervisor to itself: the time limit of a move is over.
struct MoveTimeout {
  Epoch epoch;
};

/// Belongs to the supervisor; the run must outlive it. Only rank 0 moves placements.
class PlacementMover {
 public:
  explicit PlacementMover(SupervisedRun& run) : run_(run) {}

  /// Records the home placements of all processes, which are connected.
  void begin() { home_ = placements_of(run_.directory); }
  /// Moves the placements of a lost process, or makes the run wait for its replacement process. Returns false if
  /// neither is possible.
  bool move_placements_of(const ProcessInfo& lost);
  [[nodiscard]] bool under_way() const { return change_.under_way(); }
  /// Returns whether placements have moved after a loss.
  [[nodiscard]] bool moved_after_loss() const { return moves_ > 0; }
  void taken(const PlacementsTaken& answer);
  void ready(const PlacementsReady& answer);
  void timed_out(const MoveTimeout& move);

  // Replacement processes.

  [[nodiscard]] bool is_replacement(ProcessId process) const { return queue_.is_current(process); }
  /// Handles the introduction of a replacement process, after it was built.
  void introduced(const ProcessInfo& info);
  /// Handles a replacement process that has connected to all other processes.
  void connected();
  /// Handles a replacement process that will not join the run.
  void failed(const ReplacementFailed& failure);
  /// Leaves out a replacement process without placements, since the run is over.
  void leave_out_replacement();

  // Processes that join and leave.

  /// Returns why processes cannot join or leave now, a line; empty: they can.
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
  /// Informs all processes about a process that is gone.
  void report_gone(const ProcessGone& gone);
  void start_next();
  /// Moves placements to the replacement process if it is connected and no other move is under way.
  void place_replacement();

  SupervisedRun& run_;
  PlacementChange change_;
  std::size_t moves_ = 0;         // number of moves after losses
  std::uint32_t generation_ = 0;  // number of all moves
  std::string reason_;            // reason for the last move
  std::vector<Placement> home_;   // home placements: those at the start
  ReplacementQueue queue_;
  caf::actor leaver_;  // supervisor of a leaving process, while its placements move
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::MoveTimeout)
