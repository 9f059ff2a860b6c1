// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/step_difference.hpp"

#include <nlohmann/json.hpp>

#include "runtime/core/json_text.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace {

using Json = nlohmann::json;

bool depends_on_time(const std::string& name) {
  return name.ends_with("_ms") || name.ends_with("_per_s") || name.ends_with("_busy");
}

/// Calls `each` with place, name and value of every figure that does not depend on time.
template <class Each>
void for_figures(const Json& line, const Each& each) {
  for (const char* name : {"samples", "tokens", "samples_digest"}) each("", name, line.value(name, Json()));
  const Json sections = line.value("sections", Json::object());
  for (const auto& [section, metrics] : sections.items()) {
    for (const auto& [name, value] : metrics.items()) {
      if (!depends_on_time(name)) each(", section '" + section + "'", name, value);
    }
  }
}

/// Sorts figures of the step before figures of its sections, whose names begin with ','. So a changed sample is
/// reported before a loss that was computed from it.
struct StepFirst {
  bool operator()(const std::string& a, const std::string& b) const {
    return std::pair(a.starts_with(','), std::string_view(a)) < std::pair(b.starts_with(','), std::string_view(b));
  }
};
using Figures = std::map<std::string, Json, StepFirst>;

/// Returns values by "place: name".
Figures figures_of(const Json& line) {
  Figures figures;
  for_figures(line, [&](const std::string& place, const std::string& name, const Json& value) {
    figures[place + ": " + name] = value;
  });
  return figures;
}

std::string text_of(const Figures& figures, const std::string& name) {
  const auto found = figures.find(name);
  return found == figures.end() ? "not there" : found->second.dump();
}

}  // namespace

Result<std::optional<std::string>> step_difference(std::string_view recorded, std::string_view again) {
  const Result<Json> was = parse_json(recorded, "a line of " + std::string(steps_file));
  if (!was) return was.error();
  const Result<Json> is = parse_json(again, "a line of " + std::string(steps_file));
  if (!is) return is.error();
  const Figures before = figures_of(*was);
  const Figures after = figures_of(*is);
  const auto differs = [&](const std::string& name) {
    return "step " + std::to_string(step_of_line(recorded)) + name + " was " + text_of(before, name) + ", is " +
           text_of(after, name);
  };
  for (const auto& [name, value] : before) {
    const auto found = after.find(name);
    if (found == after.end() || found->second != value) return std::optional(differs(name));
  }
  for (const auto& [name, value] : after) {
    if (!before.contains(name)) return std::optional(differs(name));
  }
  return std::optional<std::string>();
}

std::string losses_of(std::string_view text) {
  const Result<Json> line = parse_json(text, steps_file);
  if (!line) return {};
  std::string losses;
  for_figures(*line, [&](const std::string& place, const std::string& name, const Json& value) {
    if (name == "loss") losses += (losses.empty() ? "" : "; ") + place.substr(2) + " loss " + value.dump();
  });
  return losses;
}

Result<StepDigests> recorded_digests(const std::filesystem::path& record) {
  const std::filesystem::path file = record / events_file;
  const Result<std::vector<std::string>> lines = read_record(file);
  if (!lines) return lines.error();
  StepDigests digests;
  for (const std::string& text : *lines) {
    const Result<Json> event = parse_json(text, file.string());
    if (!event) return event.error();
    if (event->value("event", "") != "checkpoint" || !event->contains("digests")) continue;
    digests[event->value("step", std::uint64_t{0})] = event->at("digests").get<std::map<std::string, std::string>>();
  }
  return digests;
}

std::optional<std::string> digest_difference(const StepDigests& recorded, const StepDigests& again) {
  for (const auto& [step, sections] : recorded) {
    const auto found = again.find(step);
    if (found == again.end()) continue;
    for (const auto& [section, digest] : sections) {
      const auto other = found->second.find(section);
      if (other != found->second.end() && other->second == digest) continue;
      return "step " + std::to_string(step) + ": the values or the optimizer state of section '" + section + "' differ";
    }
  }
  return std::nullopt;
}

}  // namespace maestro
