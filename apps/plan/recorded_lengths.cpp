// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/recorded_lengths.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/record/run_log.hpp"

namespace maestro {

namespace {

using Json = nlohmann::json;
constexpr std::size_t most_steps = 32;

/// Returns the row of a line of the record that is about made samples; null: it has none.
Json made_row(const std::string& line) {
  const Json step = Json::parse(line, nullptr, false);
  if (!step.is_object() || !step.contains("sections") || !step["sections"].is_object()) return {};
  for (const auto& [section, row] : step["sections"].items()) {
    if (row.is_object() && row.contains("length_mean") && row.contains("length_max")) return row;
  }
  return {};
}

double figure(const Json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

Result<CompletionLengths> recorded_lengths(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "record" / steps_file;
  const Result<std::vector<std::string>> lines = read_record_end(file, most_steps);
  if (!lines) return lines.error();
  LengthFigures sum;
  double steps = 0;
  for (const std::string& line : *lines) {
    const Json row = made_row(line);
    if (row.is_null()) continue;
    ++steps;
    sum.mean += figure(row, "length_mean");
    sum.p50 += figure(row, "length_p50");
    sum.p95 += figure(row, "length_p95");
    sum.max = std::max(sum.max, figure(row, "length_max"));
  }
  if (steps == 0) {
    return Error{ErrorCode::invalid_argument,
                 file.string() + ": its last steps have no made samples; give the folder of a run with a generator"};
  }
  return CompletionLengths({sum.mean / steps, sum.p50 / steps, sum.p95 / steps, sum.max}, run.string());
}

}  // namespace maestro
