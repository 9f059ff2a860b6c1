// SPDX-License-Identifier: Apache-2.0
// Requests of the control service that wait for an answer, and the rows for a metrics request. Owns the promises
// (CR-4). Coordinator's thread only.
#pragma once

#include <utility>

#include "actors/run/coordinator/control_messages.hpp"

namespace maestro {

class ControlRequests {
 public:
  void await_checkpoint(StepId step, caf::response_promise request) {
    checkpoints_.emplace_back(step, std::move(request));
  }
  void await_pause(caf::response_promise request) { pauses_.push_back(std::move(request)); }
  /// Answers the requests for this checkpoint.
  void answer_checkpoints(const CheckpointCommitted& committed);
  /// Answers all pauses.
  void answer_pauses(const PauseAnswer& answer);

 private:
  std::vector<std::pair<StepId, caf::response_promise>> checkpoints_;
  std::vector<caf::response_promise> pauses_;
};

[[nodiscard]] MetricsRows metrics_rows(const RunRecord& record, const MetricsRequest& request);

}  // namespace maestro
