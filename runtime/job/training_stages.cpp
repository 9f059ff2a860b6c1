// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/training_stages.hpp"

#include <algorithm>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/config.hpp"
#include "runtime/job/job_state.hpp"

namespace maestro {

namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

TrainingStages TrainingStages::read(const JobTable& root) {
  TrainingStages stages;
  for (const JobTable& table : root.tables("stages")) stages.add(table, true);
  const auto count = static_cast<std::int64_t>(stages.stages_.size());
  for (Stage& stage : stages.stages_) stage.span.count = count;
  return stages;
}

void TrainingStages::read_keys(const JobTable& table) {
  TrainingStages().add(table, false);
}

void TrainingStages::add(const JobTable& table, bool complete) {
  Stage stage{table, {}, {}, {}};
  const std::int64_t steps =
      table.integer("steps", 0, {.min = 1, .max = most_counted}, {"optimizer steps of the stage", "steps"});
  stage.trained = table.texts("train", {}, {"the sections that the stage trains, instead of their keys `trained`"});
  const JobTable rates = table.table("lr", {"learning rates of sections in this stage, by section; absent: their own"});
  if (complete && !table.has("steps")) table.fail("steps", "is missing: a stage ends after a number of steps");
  if (complete && stage.trained.empty()) {
    table.fail("train", "names no section: list the sections that the stage trains");
  }
  for (const std::string& section : rates.keys()) {
    if (!has(stage.trained, section)) rates.fail(section, "is not a section of this stage's train");
    stage.rates[section] = rates.number(section, 0, {.min = 0.0, .max = 1e6});
  }
  stage.span.number = static_cast<std::int64_t>(stages_.size()) + 1;
  stage.span.begin = this->steps();
  stage.span.end = stage.span.begin + steps;
  for (const std::string& before : stages_.empty() ? std::vector<std::string>() : stages_.back().trained) {
    if (has(stage.trained, before)) continue;
    table.fail("train", "lacks \"" + printable(before) +
                            "\", which the stage before trains; a section cannot be frozen " +
                            "again, so add it, with lr = {" + printable(before) + " = 0.0} if it is to stay as it is");
  }
  stages_.push_back(std::move(stage));
}

std::size_t TrainingStages::after(std::uint64_t step) const {
  const auto found = std::ranges::find_if(
      stages_, [&](const Stage& stage) { return step < static_cast<std::uint64_t>(stage.span.end); });
  if (found != stages_.end()) return static_cast<std::size_t>(found - stages_.begin());
  return stages_.empty() ? 0 : stages_.size() - 1;
}

std::uint64_t TrainingStages::that_did(std::uint64_t step) const {
  return given() ? static_cast<std::uint64_t>(span(after(step > 0 ? step - 1 : 0)).number) : 0;
}

bool TrainingStages::trains(std::size_t index, const std::string& section) const {
  return has(stages_.at(index).trained, section);
}

std::optional<double> TrainingStages::lr(std::size_t index, const std::string& section) const {
  const auto& rates = stages_.at(index).rates;
  const auto found = rates.find(section);
  return found == rates.end() ? std::nullopt : std::optional(found->second);
}

void TrainingStages::check(const std::vector<std::string>& trainable, const std::vector<std::string>& frozen) const {
  for (const Stage& stage : stages_) {
    for (const std::string& section : stage.trained) {
      if (has(trainable, section)) continue;
      const std::string others = "; these can be trained: " + listed(trainable);
      if (has(frozen, section))
        stage.table.fail("train", "section \"" + section + "\" is always frozen in this app" + others);
      const auto nearest = nearest_name(section, trainable);
      stage.table.fail("train", "\"" + printable(section) + "\" is not a section" +
                                    (nearest ? "; the nearest is \"" + *nearest + "\"" : others));
    }
  }
}

std::string TrainingStages::line(std::size_t index) const {
  const Stage& stage = stages_.at(index);
  std::vector<std::string> sections;
  for (const std::string& section : stage.trained) {
    const auto rate = lr(index, section);
    sections.push_back(section + (rate ? " (lr " + number_text(*rate) + ")" : ""));
  }
  return "stage " + std::to_string(stage.span.number) + " of " + std::to_string(stage.span.count) + ": steps " +
         std::to_string(stage.span.begin + 1) + " to " + std::to_string(stage.span.end) + ", trains " +
         listed(sections);
}

}  // namespace maestro
