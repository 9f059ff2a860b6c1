// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/start_end.hpp"

#include <chrono>
#include <memory>
#include <utility>

namespace maestro {

namespace {
constexpr std::chrono::seconds report_limit(1);       // time for rank 0 to receive this process's failure
constexpr std::chrono::milliseconds stay_limit(500);  // time for a process to answer whether it takes part
}  // namespace

void StartEnd::fail(const Failure& failure, bool print, bool from_root, bool recoverable) {
  if (!run_.membership.fail()) return;
  const SupervisorOptions& options = run_.options;
  RunOutcome outcome;
  outcome.recoverable = recoverable;
  if (print) outcome.error = failure.message;
  if (run_.membership.is_root()) {
    const bool recovers = recoverable && options.may_recover && options.may_recover();
    return end_others(std::move(outcome), failure.message, failure.goes_back || recovers);
  }
  if (!run_.root || from_root) return options.outcome->set(std::move(outcome));
  ends_ = true;
  // The process ends when the outcome is set, and messages not sent by then are lost.
  const auto set = [promise = options.outcome, outcome] { promise->set(outcome); };
  run_.self->request(run_.root, report_limit, Failure{failure.message, recoverable, failure.service_lost})
      .then(set, [set](const caf::error&) { set(); });
}

void StartEnd::end_with(RunOutcome outcome, const std::string& reason) {
  const SupervisorOptions& options = run_.options;
  if (!run_.membership.is_root()) return options.outcome->set(std::move(outcome));
  const bool again = outcome.recoverable && options.may_recover && options.may_recover();
  end_others(std::move(outcome), reason, again);
}

/// Ends the other processes, or has them take part in the next start. Rank 0 only.
void StartEnd::end_others(RunOutcome outcome, const std::string& reason, bool again) {
  auto ending = std::make_shared<RunOutcome>(std::move(outcome));
  auto due = std::make_shared<std::size_t>(1);  // counts this function
  const auto answered = [ending, due, promise = run_.options.outcome] {
    if (--*due == 0) promise->set(std::move(*ending));
  };
  for (const auto& [address, peer] : mesh_.peers()) {
    if (peer.process == run_.membership.loss()) continue;
    const bool of_start = !run_.joins_later(peer.process) && !run_.membership.has_left(peer.process) &&
                          !mover_.is_replacement(peer.process);
    if (!again || !of_start) {
      send_to(run_.self, peer.supervisor, Failure{reason});
      continue;
    }
    ++*due;
    run_.self->request(peer.supervisor, stay_limit, StartAgain{})
        .then(
            [ending, answered, process = peer.process](StartAgain) {
              ending->survivors.insert(process);
              answered();
            },
            [answered](const caf::error&) { answered(); });
  }
  answered();
}

void StartEnd::finish(bool next_stage) {
  next_stage_ = next_stage;
  mover_.leave_out_replacement();
  if (!run_.membership.finish()) return;
  if (!run_.membership.is_root()) return send_to(run_.self, run_.root, run_.options.summary());
  for (const ProcessInfo& peer : run_.directory.processes) {
    if (peer.process != run_.options.process) send_to(run_.self, peer.supervisor, Finish{next_stage});
  }
  summarised(run_.options.summary());
}

void StartEnd::summarised(const ProcessSummary& summary) {
  const Tally tally = run_.membership.record(Milestone::summarised, summary.process);
  if (tally == Tally::ignored) return;
  summaries_.push_back(summary);
  if (tally != Tally::last) return;
  for (const auto& [address, peer] : mesh_.peers()) send_to(run_.self, peer.supervisor, Shutdown{});  // OM-1
  end_in_order(summaries_);
}

void StartEnd::end_in_order(std::vector<ProcessSummary> summaries) {
  RunOutcome outcome;
  outcome.ok = true;
  outcome.next_stage = next_stage_;
  outcome.processes = std::move(summaries);
  run_.options.outcome->set(std::move(outcome));
}

void StartEnd::leave() {
  run_.membership.end();
  RunOutcome outcome;
  outcome.ok = outcome.left = true;
  run_.options.outcome->set(std::move(outcome));
}

caf::result<StartAgain> StartEnd::survive() {
  run_.membership.end();
  if (ends_ || !run_.options.survives) {
    if (!ends_) run_.options.outcome->set({});  // otherwise fail() sets the outcome
    return caf::make_error(caf::sec::runtime_error, "this process cannot take part in another start");
  }
  survives_ = true;
  return StartAgain{};
}

bool StartEnd::survives(ProcessId lost) {
  if (!survives_) return false;
  RunOutcome outcome;
  outcome.again = true;
  if (lost == ProcessId(0)) run_.options.outcome->set(std::move(outcome));
  return true;
}

}  // namespace maestro
