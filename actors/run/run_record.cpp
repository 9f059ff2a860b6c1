// SPDX-License-Identifier: Apache-2.0
#include "actors/run/run_record.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace maestro {

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
  if (recovery.seconds == 0) return "the run did not get as far as its next pass";
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

StepCounts RunRecord::totals() const {
  StepCounts sum;
  for (const auto& [step, count] : counts) {
    sum.read += count.read;
    sum.trained += count.trained;
    if (step <= last_step) sum.tokens += count.tokens;
  }
  return sum;
}

void RunRecord::go_back(std::uint64_t step, const std::map<std::string, std::uint64_t>& ahead,
                        const std::string& counted) {
  const auto later = [step](const auto& row) { return row.step.value() > step; };
  const auto kept_until = [&](const std::string& section) {
    const auto found = ahead.find(section);
    return found == ahead.end() ? step : std::max(step, found->second);
  };
  std::erase_if(steps, [&](const StepRow& row) { return row.step.value() > kept_until(row.section); });
  std::erase_if(scheduling, later);
  std::erase_if(validations, later);
  validation.clear();
  for (const StepRow& row : validations) validation[row.section] = row.metrics;
  counts.erase(counts.upper_bound(kept_until(counted)), counts.end());
  for (auto after = counts.upper_bound(step); after != counts.end(); ++after)
    after->second = {0, after->second.trained, 0};
  last_step = step;
  interrupted = false;
}

}  // namespace maestro
