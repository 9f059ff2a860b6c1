// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_record.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace maestro {

void MetricTotals::add(const MetricTotals& stage) {
  for (const auto& [name, parts] : stage.values) {
    for (const auto& [index, part] : parts) {
      auto& [sum, weight] = values[name][index];
      sum += part.first;
      weight += part.second;
    }
  }
}

std::map<std::string, double> MetricTotals::means() const {
  std::map<std::string, double> result;
  for (const auto& [name, parts] : values) {
    double sum = 0;
    double weight = 0;
    for (const auto& [index, part] : parts) {
      sum += part.first;
      weight += part.second;
    }
    if (weight > 0) result[name] = sum / weight;
  }
  return result;
}

std::string text_of(const Recovery& recovery) {
  if (recovery.seconds == 0) return "the run ended before its next pass";
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.*f", recovery.in_place ? 2 : 1, recovery.seconds);
  const std::string where = recovery.in_place ? "in place" : "after step " + std::to_string(recovery.after_step);
  const std::string unit = recovery.in_place ? (recovery.repeated == 1 ? " micro-batch was" : " micro-batches were")
                                             : (recovery.repeated == 1 ? " step was" : " steps were");
  return "went on " + where + " within " + seconds.data() + " s; " + std::to_string(recovery.repeated) + unit +
         " done again";
}

std::string line_of(const Recovery& recovery) {
  return recovery.cause + "; " + text_of(recovery);
}

std::optional<SteadyStep> RunRecord::steady_step() const {
  StepTimes times;
  const std::deque<SchedulingRow>& rows = scheduling.kept();
  for (std::size_t at = rows.size() - std::min(rows.size(), StepTimes::most); at < rows.size(); ++at) {
    times.add(rows[at].step_ms, rows[at].lower_bound_ms);
  }
  return times.steady();
}

void RunRecord::keep_recent_rows() {
  constexpr std::size_t most = 4096;  // some megabytes
  steps.keep(most);
  scheduling.keep(most);
  validations.keep(most);
}

void RunRecord::go_back(std::uint64_t step, const std::map<std::string, std::uint64_t>& ahead,
                        const std::string& counted) {
  const auto later = [step](const auto& row) { return row.step.value() > step; };
  const auto kept_until = [&](const std::string& section) {
    const auto found = ahead.find(section);
    return found == ahead.end() ? step : std::max(step, found->second);
  };
  for (const StepRow& row : steps.kept()) {
    if (later(row)) unfinished[row.step.value()].push_back(row);
  }
  for (auto& [of, rows] : unfinished) {
    std::erase_if(rows, [&](const StepRow& row) { return row.step.value() > kept_until(row.section); });
  }
  steps.erase_if(later);
  scheduling.erase_if(later);
  validations.erase_if(later);
  validation.clear();
  for (const StepRow& row : validations.kept()) validation[row.section] = row.metrics;
  counts.go_back(step, kept_until(counted));
  last_step = step;
  interrupted = false;
}

}  // namespace maestro
