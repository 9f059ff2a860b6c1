// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/end_lines.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "runtime/model/hf_export.hpp"
#include "runtime/observe/progress.hpp"

namespace maestro {

namespace {

constexpr std::size_t name_columns = 20;
constexpr double bytes_per_mb = 1e6;

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

std::string seconds_text(double seconds) {
  return seconds < 60 ? formatted("%.1f s", seconds) : format_duration(seconds);
}

std::string headline(const RunResult& result) {
  std::string text = result.interrupted ? "interrupted after step " : "finished step ";
  text += std::to_string(result.last_step) + " of " + std::to_string(result.steps) + " in " +
          seconds_text(result.wall_seconds) + ", " + seconds_text(result.train_seconds) + " of them training";
  if (result.samples_per_s > 0) text += formatted(": %.1f samples/s", result.samples_per_s);
  if (result.tokens_per_s > 0) text += formatted(", %.0f tokens/s", result.tokens_per_s);
  return text;
}

/// Names and values below the headline, and the same as fields.
class Entries {
 public:
  std::vector<std::string> lines;
  LogFields fields;

  void add(const std::string& name, const std::string& text) {
    lines.push_back(name + std::string(name_columns - std::min(name.size(), name_columns - 2), ' ') + text);
  }
  /// Adds a path, also as a field, unless it is empty.
  void add_path(const std::string& name, const std::string& path) {
    if (path.empty()) return;
    add(name, path);
    fields.emplace_back(name, path);
  }
};

void add_figures(const RunResult& result, Entries& entries) {
  std::string validation;
  for (const auto& [section, figures] : result.validation) {
    validation += (validation.empty() ? "" : "; ") + section + " " + format_figures(figures);
    entries.fields.emplace_back("validation." + section, figures);
  }
  if (!result.losses.empty()) {
    entries.add("loss", format_figures(result.losses));
    entries.fields.emplace_back("loss", result.losses);
  }
  if (!validation.empty()) entries.add("validation", validation);
  if (const auto& made = result.made; !made.empty()) {
    entries.add(
        "made samples",
        formatted("%.1f tokens, 95%% of them up to %.0f; %.0f%% ended by a stop token; staleness %.0f",
                  made.at("length_mean"), made.at("length_p95"), 100 * made.at("stop_share"), made.at("staleness")));
    entries.fields.emplace_back("made", made);
  }
  if (result.rehearsal) {
    entries.add("step time",
                formatted("%.1f ms, planned %.1f ms", result.rehearsal->measured_step_ms, result.rehearsal->step_ms));
    entries.fields.emplace_back("step_ms", result.rehearsal->measured_step_ms);
    entries.fields.emplace_back("planned_step_ms", result.rehearsal->step_ms);
  }
  entries.add("peak memory", formatted("%.0f MB, estimated %.0f MB", result.max_rss_mb, result.estimated_mb));
  entries.fields.emplace_back("max_rss_mb", result.max_rss_mb);
  entries.fields.emplace_back("estimated_mb", result.estimated_mb);
  if (result.writes > 0) {
    const double megabytes = static_cast<double>(result.bytes) / bytes_per_mb;
    entries.add("moved by RMA",
                formatted("%.1f MB in %llu writes (", megabytes, static_cast<unsigned long long>(result.writes)) +
                    result.provider + ")");
    entries.fields.emplace_back("bytes", result.bytes);
    entries.fields.emplace_back("writes", result.writes);
  }
  for (const std::string& recovery : result.recoveries) entries.add("recovered", recovery);
  if (!result.recoveries.empty()) entries.fields.emplace_back("recoveries", result.recoveries);
  if (!result.left_out.empty()) {
    entries.add("left out", std::to_string(result.left_out.size()) + " samples that could not be read");
    entries.fields.emplace_back("left_out", result.left_out);
  }
}

void add_models(const std::map<std::string, std::string>& folders, Entries& entries) {
  for (const auto& [section, folder] : folders) {
    entries.add("model " + section, folder);
    entries.fields.emplace_back("models." + section, folder);
    const auto load = load_expression(folder);
    if (load) entries.add("", "load it: " + *load);
  }
}

void add_files(const RunResult& result, Entries& entries) {
  entries.add_path("record", result.record);
  entries.add_path("report", result.report);
  entries.add_path("trace", result.trace);
  entries.add_path("checkpoint", result.checkpoint);
  add_models(result.models, entries);
  if (!result.interrupted || result.resume.empty()) return;
  entries.add("to go on", "the same command with --resume " + result.resume);
  entries.fields.emplace_back("resume", result.resume);
}

}  // namespace

void print_models(const std::map<std::string, std::string>& folders, Console& console) {
  Entries entries;
  add_models(folders, entries);
  for (const std::string& line : entries.lines) console.note(line);
}

void print_summary(const RunResult& result, Console& console) {
  if (result.steps == 0) return;
  Entries entries;
  entries.fields = {{"event", "summary"},
                    {"step", result.last_step},
                    {"steps", result.steps},
                    {"interrupted", result.interrupted},
                    {"seconds", result.wall_seconds},
                    {"train_seconds", result.train_seconds},
                    {"samples_per_s", result.samples_per_s},
                    {"tokens_per_s", result.tokens_per_s}};
  add_figures(result, entries);
  add_files(result, entries);
  console.summary(headline(result), entries.lines, std::move(entries.fields));
}

}  // namespace maestro
