// SPDX-License-Identifier: Apache-2.0
// The end of a start in a process: decides the process's outcome (SV-1), and on rank 0 also whether the other processes
// end or take part in the next start (SV-13).
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

  /// Ends with a failure, unless the run has ended in this process. `print`: this process prints it.
  void fail(const Failure& failure, bool print, bool from_root = false, bool recoverable = false);
  /// Ends with a loss; `reason` is sent to the other processes.
  void end_with(RunOutcome outcome, const std::string& reason);
  /// Requests the summary of every process, after all work is done. `next_stage`: the run goes on with its next stage.
  void finish(bool next_stage);
  void summarised(const ProcessSummary& summary);
  void end_in_order(std::vector<ProcessSummary> summaries = {});
  /// Ends this process, which has left the run; the run continues.
  void leave();
  /// Answers whether this process, which is not rank 0, takes part in the next start.
  [[nodiscard]] caf::result<StartAgain> survive();
  /// Returns whether this process only awaits the end of rank 0's supervisor. If `lost` is rank 0, this process ends
  /// its part.
  [[nodiscard]] bool survives(ProcessId lost);

 private:
  void end_others(RunOutcome outcome, const std::string& reason, bool again);

  SupervisedRun& run_;
  const PeerMesh& mesh_;
  PlacementMover& mover_;
  std::vector<ProcessSummary> summaries_;  // rank 0 only
  bool next_stage_ = false;                // another stage follows the end in order
  bool survives_ = false;                  // not rank 0: takes part in the next start
  bool ends_ = false;                      // not rank 0: has failed, and ends after rank 0 has the reason
};

}  // namespace maestro
