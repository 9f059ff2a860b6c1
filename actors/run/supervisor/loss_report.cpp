// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/loss_report.hpp"

#include "actors/messages/wait_text.hpp"

namespace maestro {

LossReport::LossReport(const SupervisedRun& run, const ProcessInfo& lost)
    : run_(&run),
      process_(lost.process),
      identity_(lost.identity),
      label_(lost.identity.pid == 0 ? "process 0 (coordinator)" : process_label(lost, *run.options.graph)),
      step_(run.step()) {}

void LossReport::add(const WaitingFor& survivor) {
  const SectionGraph& graph = *run_->options.graph;
  const std::string text = wait_text(survivor, graph);
  if (text.empty()) return;
  add("section '" + graph.node(survivor.section).name + "' replica " + std::to_string(survivor.replica.value()) +
      " waits for " + text);
}

std::string LossReport::text() const {
  const RunMembership& membership = run_->membership;
  const bool settled = membership.is_root() && membership.loss();  // the launcher would have reported a death by now
  std::string how = settled ? "it was silent for too long" : "it died, or was silent for too long";
  if (const auto end = membership.how_ended(process_)) how = "it ended with " + *end;
  return "lost " + label_ + " in step " + step_ + ": " + how;
}

RunOutcome LossReport::outcome() const {
  RunOutcome outcome;
  outcome.recoverable = process_ != ProcessId(0);
  outcome.lost_at = noticed_;
  if (run_->prints()) {
    outcome.error = text();
    for (const std::string& line : lines_) outcome.error += "; " + line;
  }
  if (run_->membership.on_this_host(process_)) outcome.lost.push_back(identity_);
  return outcome;
}

}  // namespace maestro
