// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/control_requests.hpp"

#include <algorithm>

namespace maestro {

void ControlRequests::answer_checkpoints(const CheckpointCommitted& committed) {
  for (auto& [step, promise] : checkpoints_) {
    if (step == committed.step) promise.deliver(CheckpointAnswer{step, committed.path, {}});
  }
  std::erase_if(checkpoints_, [&](const auto& request) { return request.first == committed.step; });
}

void ControlRequests::answer_pauses(const PauseAnswer& answer) {
  for (caf::response_promise& promise : std::exchange(pauses_, {})) promise.deliver(answer);
}

MetricsRows metrics_rows(const RunRecord& record, const MetricsRequest& request) {
  struct Page {
    std::int64_t first, next;
  };
  const auto page = [&](const RecentRows<StepRow>& rows, std::int64_t wanted, std::vector<StepRow>& to) {
    const auto count = static_cast<std::int64_t>(rows.kept().size());
    const auto kept = static_cast<std::int64_t>(rows.first());
    const auto number = static_cast<std::size_t>(std::max(wanted, kept));
    const std::int64_t from =
        wanted < 0 ? std::max<std::int64_t>(count + wanted, 0) : static_cast<std::int64_t>(rows.place_of(number));
    const std::int64_t end = from + std::clamp<std::int64_t>(request.most, 0, count - from);
    to.assign(rows.kept().begin() + from, rows.kept().begin() + end);
    const auto number_at = [&](std::int64_t place) {
      return static_cast<std::int64_t>(rows.number_at(static_cast<std::size_t>(place)));
    };
    return Page{wanted < 0 ? number_at(from) : static_cast<std::int64_t>(std::min(number, rows.next())),
                number_at(end)};
  };
  MetricsRows answer;
  const Page steps = page(record.steps, request.first_step_row, answer.steps);
  const Page validations = page(record.validations, request.first_validation_row, answer.validations);
  answer.first_step_row = steps.first;
  answer.next_step_row = steps.next;
  answer.first_validation_row = validations.first;
  answer.next_validation_row = validations.next;
  return answer;
}

}  // namespace maestro
