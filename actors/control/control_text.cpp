// SPDX-License-Identifier: Apache-2.0
#include "actors/control/control_text.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <vector>

#include "actors/control/control_types.h"
#include "runtime/core/printable_text.hpp"

namespace maestro {
namespace {

std::string number(double value, const char* format = "%.4g") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

/// Makes a name from a job printable: another user may have written the job.
std::string shown(const std::string& text) {
  return printable_line(text);
}

/// Returns a value's word; `otherwise` for a value that only another version has.
template <int Count>
const char* word_of(int value, const char* const (&words)[Count], const char* otherwise) {
  return value >= 0 && value < Count ? words[value] : otherwise;
}

const char* word(control::State::type state) {
  static constexpr const char* words[] = {"starting", "running", "pausing", "paused", "stopping", "finished"};
  return word_of(state, words, "in an unknown state");
}

const char* word(control::UnitKind::type kind) {
  static constexpr const char* words[] = {"step", "validation after step", "checkpoint of step", "shadow of step"};
  return word_of(kind, words, "unit of step");
}

/// Formats rows; every column but the last is as wide as its widest cell.
std::string table(std::vector<std::vector<std::string>> rows) {
  std::vector<std::size_t> widths;
  for (auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::string& cell : row) cell = shown(cell);
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t at = 0; at < row.size(); ++at) {
      line += " " + row[at] + std::string(at + 1 < row.size() ? widths[at] - row[at].size() + 1 : 0, ' ');
    }
    text += "\n" + line.substr(0, line.find_last_not_of(' ') + 1);
  }
  return text;
}

std::string figures_text(const std::map<std::string, double>& metrics) {
  std::vector<std::string> figures;
  for (const auto& [name, value] : metrics) figures.push_back(name + " " + number(value));
  return joined(figures, ", ");
}

std::string share_text(bool known, double share) {
  return known ? number(100 * share, "%.0f%%") : "-";
}

std::vector<std::string> section_row(const control::SectionFigures& section) {
  return {section.name,
          std::to_string(section.replicas),
          section.trained ? "trained" : "frozen",
          section.step > 0 ? std::to_string(section.step) : "-",
          share_text(section.__isset.busy, section.busy),
          figures_text(section.metrics)};
}

std::string place(std::int32_t process, const std::string& host) {
  return "process " + std::to_string(process) + (host.empty() ? "" : " at " + host);
}

std::vector<std::vector<std::string>> device_rows(const control::Status& status) {
  std::vector<std::vector<std::string>> rows{{"device", "process", "busy"}};
  for (const control::DeviceFigures& device : status.devices) {
    rows.push_back({device.device, place(device.process, device.host), share_text(true, device.busy)});
  }
  return rows;
}

}  // namespace

std::string state_text(const control::Status& status) {
  return word(status.state);
}

std::string doing_text(const control::ReplicaFigures& replica) {
  if (replica.state == control::ReplicaState::NO_ANSWER) return "no answer";
  if (replica.state == control::ReplicaState::IDLE) return "waits for " + replica.wait.text;
  std::string text = replica.doing + ", step " + std::to_string(replica.step);
  if (replica.__isset.micro_batch) text += ", micro-batch " + std::to_string(replica.micro_batch);
  return text;
}

std::string plain_text(const control::Status& status) {
  std::string text = "job " + shown(status.job) + ": " + word(status.state) + ", step " + std::to_string(status.step) +
                     " of " + std::to_string(status.steps) + ", epoch " + number(status.epoch, "%.2f") + ", " +
                     number(status.samples_per_s, "%.1f") + " samples/s";
  if (status.__isset.loss) text += ", loss " + number(status.loss, "%.4f");
  if (!status.stage.empty()) text += "\n" + shown(status.stage);
  if (status.__isset.step_ms) text += "\nstep time: " + number(status.step_ms, "%.1f") + " ms";
  if (status.__isset.step_time_over_bound) {
    text += ", " + number(status.step_time_over_bound, "%.3f") + " times the lower bound of a step by itself";
  }
  std::vector<std::string> units;
  for (const control::Unit& unit : status.units) {
    units.push_back(std::string(word(unit.kind)) + " " + std::to_string(unit.step));
  }
  if (status.__isset.stops_after) text += "\nends after step " + std::to_string(status.stops_after);
  text += "\nannounced: " + (units.empty() ? "nothing" : joined(units, ", "));
  if (!status.checkpoint.empty()) text += "\nlast checkpoint: " + shown(status.checkpoint);
  for (const std::string& recovery : status.recoveries) text += "\nrecovered: " + shown(recovery);
  std::vector<std::vector<std::string>> sections{{"section", "replicas", "", "step", "busy", ""}};
  for (const control::SectionFigures& section : status.sections) sections.push_back(section_row(section));
  text += table(sections);
  if (!status.devices.empty()) text += table(device_rows(status));
  std::vector<std::vector<std::string>> replicas{{"replica", "process", "devices", "busy", ""}};
  for (const control::ReplicaFigures& replica : status.replicas) {
    replicas.push_back({replica.section + " " + std::to_string(replica.replica),
                        place(replica.process, replica.host) + " (pid " + std::to_string(replica.pid) + ")",
                        joined(replica.devices, ","), share_text(replica.__isset.busy, replica.busy),
                        doing_text(replica)});
  }
  return text + table(replicas) +
         "\nbusy: share of the last steps' time; sections and replicas: in passes, devices: in passes and at step ends";
}

namespace {

/// Returns "replicas x context x tensor", with a list of contexts if replicas differ.
std::string layout(const control::PlannedSection& section) {
  const std::int64_t tensor = std::max(section.tensor, 1);
  std::vector<std::string> contexts;
  for (const control::PlannedReplica& replica : section.replicas) {
    contexts.push_back(std::to_string(std::ssize(replica.devices) / tensor));
  }
  const bool alike = std::ranges::count(contexts, std::to_string(section.context)) == std::ssize(contexts);
  return std::to_string(section.replicas.size()) + " x " +
         (alike ? std::to_string(section.context) : "(" + joined(contexts, ", ") + ")") + " x " +
         std::to_string(section.tensor);
}

}  // namespace

std::string plain_text(const control::Plan& plan) {
  std::string text = "job " + shown(plan.job) + ": batches of " + std::to_string(plan.global_batch) +
                     " samples, policy " + shown(plan.policy) + ", " + std::to_string(plan.slots) +
                     " slots per edge and consumer";
  if (plan.__isset.planned_ms) {
    text += "\nthe plan of step " + std::to_string(plan.step) + " has a makespan of " + number(plan.planned_ms) + " ms";
    if (plan.__isset.lower_bound_ms) text += "; no schedule is shorter than " + number(plan.lower_bound_ms) + " ms";
  }
  std::vector<std::vector<std::string>> sections{{"section", "mode", "layout", "micro-batch", "places"}};
  for (const control::PlannedSection& section : plan.sections) {
    std::vector<std::string> places;
    for (const control::PlannedReplica& replica : section.replicas) {
      places.push_back(place(replica.process, replica.host) + " " + joined(replica.devices, ","));
    }
    sections.push_back({section.name, section.mode + (section.trained ? ", trained" : ""), layout(section),
                        std::to_string(section.micro_batch), joined(places, "; ")});
  }
  text += table(sections);
  std::vector<std::vector<std::string>> edges;
  for (const control::PlannedEdge& edge : plan.edges) {
    edges.push_back({edge.from_section + "." + edge.from_port, edge.gradient ? "<->" : "->",
                     edge.to_section + "." + edge.to_port, edge.dtype + " x " + std::to_string(edge.columns)});
  }
  return text + table(edges);
}

std::string plain_text(const control::Checkpoint& checkpoint) {
  return "checkpoint of step " + std::to_string(checkpoint.step) + ": " + shown(checkpoint.path);
}

std::string plain_text(const control::Standing& standing) {
  return std::string(word(standing.state)) + " after step " + std::to_string(standing.step);
}

std::string plain_text(const control::Leaving& leaving) {
  return "process " + std::to_string(leaving.process) + " leaves; " + shown(leaving.text);
}

std::string plain_text(const MetricsRow& row) {
  return (row.validation ? "validation after step " : "step ") + std::to_string(row.step) + ", " + row.section + ": " +
         figures_text(row.metrics);
}

std::string sparkline(const std::vector<double>& values, std::size_t width) {
  static constexpr const char* levels[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                           "\u2585", "\u2586", "\u2587", "\u2588"};
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double value) { return std::isfinite(value); });
  const std::size_t columns = std::min(width, finite.size());
  std::vector<double> means;
  for (std::size_t at = 0; at < columns; ++at) {
    const std::size_t begin = at * finite.size() / columns;
    const std::size_t end = (at + 1) * finite.size() / columns;
    double sum = 0;
    for (std::size_t each = begin; each < end; ++each) sum += finite[each];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  if (means.empty()) return {};
  const auto [low, high] = std::ranges::minmax(means);
  std::string curve;
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0;
    curve += levels[std::min<std::size_t>(static_cast<std::size_t>(share * 8), 7)];
  }
  return curve;
}

}  // namespace maestro
