// SPDX-License-Identifier: Apache-2.0
// What the coordinator prints while the run goes on.
#include "actors/run/coordinator.hpp"

namespace maestro {

void Coordinator::report_progress(StepId step) {
  const auto now = std::chrono::steady_clock::now();
  Progress progress = meter_.finished(static_cast<std::int64_t>(step.value()), loss_, now);
  progress.parts = parts_;
  options_.console->progress(progress, now);
}

void Coordinator::print_validation(const Open& open) const {
  std::string text;
  LogFields fields = {{"event", "validation"}, {"step", open.unit.step.value()}};
  for (const auto& [section, figures] : open.figures) {
    text += (text.empty() ? ": " : "; ") + section + " " + format_figures(figures);
    fields.emplace_back("validation." + section, figures);
  }
  if (text.empty()) return;
  options_.console->note("validation after step " + std::to_string(open.unit.step.value()) + text, std::move(fields));
}

}  // namespace maestro
