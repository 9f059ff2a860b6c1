// SPDX-License-Identifier: Apache-2.0
// The coordinator's handlers for requests of the control service.
#include <algorithm>

#include "actors/run/coordinator.hpp"

namespace maestro {

using Clock = std::chrono::steady_clock;

RunState Coordinator::state() const {
  if (finished_) return RunState::finished;
  if (schedule_.stopped()) return RunState::stopping;
  if (schedule_.paused()) return open_.empty() ? RunState::paused : RunState::pausing;
  return began_ ? RunState::running : RunState::starting;
}

StepId Coordinator::last_step() const {
  return StepId(std::max(options_.record->last_step, options_.schedule.first_step - 1));
}

RunStatus Coordinator::status() const {
  const RunRecord& record = *options_.record;
  RunStatus status;
  status.state = state();
  status.last_step = last_step().value();
  status.position = options_.cursor.position(status.last_step + 1, static_cast<std::uint64_t>(options_.global_batch));
  for (const auto& [key, open] : open_) {
    status.units.push_back(open.unit);
    if (!status.planned) status.planned = open.watch.planned();
  }
  if (began_) status.elapsed_s = std::chrono::duration<double>(Clock::now() - started_).count();
  status.samples_per_s = recent_samples_per_s();
  const StepCounts counts = record.totals();
  status.samples_trained = counts.trained;
  status.tokens_trained = counts.tokens;
  status.latest = latest_;
  const auto watched = latest_.find(options_.graph->node(watched_section(*options_.graph)).section_name());
  if (watched != latest_.end() && watched->second.metrics.contains("loss")) status.loss = loss_;
  if (!record.scheduling.kept().empty()) status.scheduling = record.scheduling.kept().back();
  status.checkpoint = record.checkpoint;
  for (const Recovery& recovery : record.recoveries) status.recoveries.push_back(line_of(recovery));
  status.left_out = record.left_out.size();
  status.figures = options_.figures->totals();
  status.announced = began_ && !rescuing_ && (finished_ || !open_.empty());
  if (options_.events != nullptr) status.events = options_.events->load(std::memory_order_relaxed);
  if (awaiting_batch_) status.working = "process 0 reads and plans the next batch";
  if (options_.snapshots->busy()) status.working = "process 0 writes a checkpoint or the record";
  status.directory = directory_;
  return status;
}

double Coordinator::recent_samples_per_s() const {
  constexpr std::size_t window = 20;  // steps
  const auto& rows = options_.record->scheduling.kept();
  if (rows.size() < 2) return 0;
  const std::size_t steps = std::min(window, rows.size() - 1);
  const double ms = rows.back().begin_ms - rows[rows.size() - 1 - steps].begin_ms;
  return ms > 0 ? static_cast<double>(steps) * static_cast<double>(options_.global_batch) * 1000 / ms : 0;
}

MetricsRows Coordinator::metrics(const MetricsRequest& request) const {
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
  const Page steps = page(options_.record->steps, request.first_step_row, answer.steps);
  const Page validations = page(options_.record->validations, request.first_validation_row, answer.validations);
  answer.first_step_row = steps.first;
  answer.next_step_row = steps.next;
  answer.first_validation_row = validations.first;
  answer.next_validation_row = validations.next;
  return answer;
}

caf::result<CheckpointAnswer> Coordinator::checkpoint_requested() {
  if (!options_.schedule.keeps_state) {
    return CheckpointAnswer{{}, {}, "emulated devices train nothing: there is no state to store"};
  }
  if (finished_) return CheckpointAnswer{{}, {}, "the run is at its end"};
  const std::optional<StepId> step = schedule_.request_checkpoint();
  if (!step) return CheckpointAnswer{{}, {}, "no step has been trained yet"};
  if (committed_ == step) return CheckpointAnswer{*step, options_.record->checkpoint, {}};
  caf::response_promise promise = make_response_promise();
  checkpoint_requests_.emplace_back(*step, promise);
  announce();
  return promise;
}

void Coordinator::checkpoint_committed(const CheckpointCommitted& committed) {
  committed_ = committed.step;
  for (auto& [step, promise] : checkpoint_requests_) {
    if (step == committed.step) promise.deliver(CheckpointAnswer{step, committed.path, {}});
  }
  std::erase_if(checkpoint_requests_, [&](const auto& request) { return request.first == committed.step; });
}

caf::result<PauseAnswer> Coordinator::pause_requested(const PauseRequest& request) {
  if (request.pause) {
    schedule_.pause();
    options_.record->pause_after = schedule_.last_step();  // a loss does not end the pause
    answer_pauses();
  } else {
    options_.record->pause_after.reset();
    resume_run();
  }
  if (state() != RunState::pausing) return PauseAnswer{state(), last_step()};
  caf::response_promise promise = make_response_promise();
  pause_requests_.push_back(promise);
  return promise;
}

void Coordinator::resume_run() {
  if (rolling_back_) return;
  const bool was_paused = schedule_.paused(), stood_still = state() == RunState::paused;
  schedule_.resume();
  pause_noted_ = false;
  if (!was_paused) return;
  if (stood_still) {  // the pause belongs to no step
    unit_started_ = Clock::now();
    for (auto& [section, end] : last_step_end_) end = unit_started_;
  }
  if (began_) announce();
  answer_pauses();
}

void Coordinator::answer_pauses() {
  if (state() == RunState::pausing) return;
  if (state() == RunState::paused && began_ && !rolling_back_ && !std::exchange(pause_noted_, true)) {
    options_.console->note("paused after step " + std::to_string(last_step().value()) +
                           "; `maestro continue` continues the run");
  }
  for (caf::response_promise& promise : std::exchange(pause_requests_, {})) {
    promise.deliver(PauseAnswer{state(), last_step()});
  }
}

}  // namespace maestro
