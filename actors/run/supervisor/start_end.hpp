// SPDX-License-Identifier: Apache-2.0
// The end of a process's part of a start: its outcome (SV-1), and on rank 0 that of the other processes, which end or
// take part in the next start (SV-13).
#pragma once

#include <string>
#include <vector>

#include "actors/run/supervisor/peer_mesh.hpp"
#include "actors/run/supervisor/placement_mover.hpp"
#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// Belongs to the supervisor; all arguments must outlive it.
class StartEnd {
 public:
  StartEnd(SupervisedRun& run, const PeerMesh& mesh, PlacementMover& mover) : run_(run), mesh_(mesh), mover_(mover) {}

  /// Ends with a failure, unless the run has ended here. `print`: this process prints it.
  void fail(const Failure& failure, bool print, bool from_root = false, bool recoverable = false);
  /// Ends with a loss, of which `reason` informs the others.
  void end_with(RunOutcome outcome, const std::string& reason);
  /// All work is done: every process sends its summary.
  void finish();
  void summarised(const ProcessSummary& summary);
  void end_in_order(std::vector<ProcessSummary> summaries = {});
  /// This process has left the run, which goes on.
  void leave();
  /// Answers whether this process takes part in the next start, on another process than rank 0.
  [[nodiscard]] caf::result<StartAgain> survive();
  /// Returns whether this process only awaits the end of rank 0's supervisor; a loss of that is its end.
  [[nodiscard]] bool survives(ProcessId lost);

 private:
  void end_others(RunOutcome outcome, const std::string& reason, bool again);

  SupervisedRun& run_;
  const PeerMesh& mesh_;
  PlacementMover& mover_;
  std::vector<ProcessSummary> summaries_;  // on rank 0
  bool survives_ = false;                  // not on rank 0: the end of its supervisor is awaited
  bool ends_ = false;  // not on rank 0: this process has failed, and ends when rank 0 has the reason
};

}  // namespace maestro
