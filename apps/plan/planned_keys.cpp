// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/planned_keys.hpp"

#include <algorithm>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/model/hf_config.hpp"

namespace maestro {

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void check_varied(const std::vector<std::string>& sections, const std::set<std::string>& varied) {
  std::vector<std::string> known{"all"};
  known.insert(known.end(), planned_keys().begin(), planned_keys().end());
  for (const std::string& section : sections) {
    for (const std::string& key : planned_keys()) known.push_back(section + "." + key);
  }
  for (const std::string& key : varied) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const auto nearest = nearest_name(key, known);
    throw JobError("--vary " + printable(key) + ": plan chooses " + joined(planned_keys()) + " of a section" +
                   (nearest ? "; did you mean " + *nearest + "?" : ", such as --vary micro_batch"));
  }
}

}  // namespace

const std::vector<std::string>& planned_keys() {
  static const std::vector<std::string> keys{"replicas", "tensor", "context",     "expert", "pipeline",
                                             "chunks",   "zero",   "micro_batch", "devices"};
  return keys;
}

std::string value_of(const SectionLayout& layout, const std::string& key) {
  if (key == "replicas") return std::to_string(layout.replicas);
  if (key == "tensor") return std::to_string(layout.tensor);
  if (key == "context") return std::to_string(layout.context);
  if (key == "pipeline") return std::to_string(layout.pipeline);
  if (key == "chunks") return std::to_string(layout.chunks);
  if (key == "expert") return std::to_string(layout.expert);
  if (key == "micro_batch") return std::to_string(layout.micro_batch);
  return layout.zero ? "true" : "false";
}

std::string only_difference(const SectionLayout& a, const SectionLayout& b) {
  std::string found;
  for (const std::string& key : planned_keys()) {
    if (key == "devices" || value_of(a, key) == value_of(b, key)) continue;
    if (!found.empty()) return {};
    found = key;
  }
  return found;
}

std::string list_text(const std::vector<std::string>& values) {
  constexpr std::size_t of_a_line = 64;
  std::string text;
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (at > 0) text += at % of_a_line == 0 ? ",\n" : ", ";
    text += values[at];
  }
  return "[" + text + "]";
}

std::string devices_text(const std::string& kind, const std::vector<int>& devices) {
  std::vector<std::string> names;
  for (const int device : devices) names.push_back("\"" + kind + ":" + std::to_string(device) + "\"");
  return list_text(names);
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const std::int64_t number : numbers) texts.push_back(std::to_string(number));
  return list_text(texts);
}

std::int64_t experts_of(const ResolvedJob& job, const std::string& section) {
  const Section& first = *job.meta_sections[job.graph.stages_of(section).front().value()];
  const auto config = parse_hf_config(first.config_json(), "config.json");
  return config.ok() ? config->experts.count : 0;
}

ChosenKeys::ChosenKeys(const ResolvedJob& job, const std::set<std::string>& varied) {
  for (const GraphNode& node : job.graph.nodes()) {
    if (node.plays_in_steps() && node.stage == 0) sections_.push_back(node.section_name());
  }
  check_varied(sections_, varied);
  bool some = false;
  for (const std::string& section : sections_) {
    std::set<std::string>& free = free_[section];
    for (const std::string& key : planned_keys()) {
      const std::string full = section + "." + key;
      const bool named = varied.contains("all") || varied.contains(key) || varied.contains(full);
      if (named || !job.settings.contains(full)) free.insert(key);
    }
    const SectionId first = job.graph.stages_of(section).front();
    if (!job.graph.node(first).trained()) free.erase("zero");
    if (!free.contains("pipeline") && job.sections[first.value()].config.pipeline == 1) free.erase("chunks");
    if (experts_of(job, section) == 0) free.erase("expert");
    if (job.settings.contains(section + ".micro_batch_tokens")) free.erase("micro_batch");  // it follows the tokens
    const SectionConfig& config = job.sections[first.value()].config;
    if (!config.contexts.empty() && !free.contains("replicas")) {
      throw JobError(section +
                     ".replicas lists replicas that differ in context, and plan keeps replicas that are alike; " +
                     "add --vary " + section + ".replicas, or set a number");
    }
    devices_of_[section] = free.contains("devices") ? "" : config.devices_of;
    if (!devices_of(section).empty()) free.insert("replicas");
    given_[section] = {config.replicas, config.tensor, config.context,     config.pipeline,
                       config.chunks,   config.zero,   config.micro_batch, config.expert};
    some = some || !free.empty();
  }
  if (some) return;
  throw JobError(
      "the job gives every key that plan chooses; name some with --vary, such as --vary micro_batch, or take them out "
      "of the job");
}

std::vector<SectionLayout> ChosenKeys::standing(const std::string& section, std::vector<SectionLayout> possible) const {
  const std::set<std::string>& free = of(section);
  const SectionLayout& given = given_.at(section);
  for (SectionLayout& layout : possible) {
    if (!free.contains("micro_batch")) layout.micro_batch = given.micro_batch;
    if (!free.contains("expert")) layout.expert = given.expert;
  }
  std::erase_if(possible, [&](const SectionLayout& layout) {
    return !std::ranges::all_of(planned_keys(), [&](const std::string& key) {
      if (key == "devices" || free.contains(key)) return true;
      if (key == "zero" && layout.replicas == 1) return !layout.zero;  // there is nothing to shard
      return value_of(layout, key) == value_of(given, key);
    });
  });
  std::ranges::sort(possible);
  possible.erase(std::unique(possible.begin(), possible.end()), possible.end());
  return possible;
}

std::vector<std::string> ChosenKeys::settings(const std::string& section, const SectionLayout& layout,
                                              const std::string& devices) const {
  std::vector<std::string> settings;
  for (const std::string& key : planned_keys()) {
    if (!of(section).contains(key) || (key == "replicas" && !devices_of(section).empty())) continue;
    if (key == "chunks" && layout.chunks == 1 && given_.at(section).chunks == 1) continue;  // the default
    if (key == "expert" && layout.expert == 1 && given_.at(section).expert == 1) continue;
    settings.push_back(section + "." + key + "=" + (key == "devices" ? devices : value_of(layout, key)));
  }
  return settings;
}

std::vector<std::string> ChosenKeys::settings_on(const std::string& section, const SectionLayout& layout,
                                                 const std::string& devices) const {
  std::vector<std::string> settings = this->settings(section, layout, "");
  std::erase(settings, section + ".devices=");
  if (!devices_of(section).empty()) settings.push_back(section + ".replicas=" + value_of(layout, "replicas"));
  settings.push_back(section + ".devices=" + devices);
  return settings;
}

}  // namespace maestro
