// SPDX-License-Identifier: Apache-2.0
#include "actors/job/learning_rates.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/optimizer.hpp"

namespace maestro {

namespace {

constexpr const char* settings_name = "the checkpoint's settings";

/// A section's learning rates by step.
struct Course {
  OptimizerConfig optimizer;
  std::int64_t steps = 0;
  [[nodiscard]] double at(std::int64_t step) const { return AdamWOptimizer(optimizer, steps).learning_rate(step); }
  [[nodiscard]] bool ends_before(std::int64_t step) const {
    return optimizer.schedule != LearningRateSchedule::constant && step > std::max(steps, optimizer.warmup_steps + 1);
  }
};

std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", rate);
  return text;
}

bool is_close(double a, double b) {
  constexpr double tolerance = 0.1;
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

std::vector<const SectionConfig*> trained_sections(const ResolvedJob& plan) {
  std::vector<const SectionConfig*> sections;
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.trained() && node.stage == 0 && !plan.sections[index].config.emulated())
      sections.push_back(&plan.sections[index].config);
  }
  return sections;
}

/// Returns the line about a warm-up that the run does not leave.
std::string warmup_note(const SectionConfig& section, const Course& course, std::int64_t run_steps) {
  const OptimizerConfig& optimizer = course.optimizer;
  std::string text = section.name + ".warmup_steps = " + std::to_string(optimizer.warmup_steps) + " in a run of " +
                     std::to_string(run_steps) + " steps: the learning rate reaches " +
                     rate_text(course.at(run_steps)) + " at most, " + rate_text(course.at(run_steps) / optimizer.lr) +
                     " of lr = " + number_text(optimizer.lr);
  if (optimizer.schedule != LearningRateSchedule::constant) {
    text += ", and never decays to min_lr = " + number_text(optimizer.min_lr);
  }
  return text;
}

/// Returns `keys` of a table in the stored settings as a table.
JobDocument stored_table(const Manifest& stored, const std::string& table, std::initializer_list<const char*> keys) {
  const std::string prefix = JobDocument::parse("", settings_name).root().table(table).name() + ".";
  std::string text;
  for (const char* key : keys) {
    const auto found = stored.settings.find(prefix + key);
    if (found != stored.settings.end()) text += std::string(key) + " = " + found->second + "\n";
  }
  return JobDocument::parse(std::move(text), settings_name);
}

/// Returns the length of the checkpoint's schedules.
std::int64_t stored_schedule_steps(const ResolvedJob& plan, const Manifest& stored) {
  TrainConfig train =
      read_train(stored_table(stored, "train", {"steps", "epochs", "global_batch", "schedule_steps"}).root());
  if (train.epochs > 0) {
    const auto counted = stored.data.find("training samples");
    const auto count = [&] {
      const JobDocument text = JobDocument::parse("samples = " + counted->second, settings_name);
      return static_cast<std::uint64_t>(text.root().integer("samples", 1, {.min = 1, .max = most_counted}));
    };
    const std::string key = plan.rollouts ? plan.rollouts->name + ".samples_per_prompt" : "";
    const auto repeated = stored.settings.find(key);
    const std::uint64_t times =
        repeated == stored.settings.end() ? 1 : std::strtoull(repeated->second.c_str(), nullptr, 10);
    const std::uint64_t samples = counted == stored.data.end() ? plan.corpus->samples(Split::train) : count();
    train.steps = steps_of_epochs(train, samples * times);
  }
  return train.scheduled_steps();
}

/// Returns a section's line; empty: its rate does not jump.
std::string jump_of(const SectionConfig& section, const Course& was, const Course& is, std::int64_t step) {
  const double before = was.at(step), now = is.at(step + 1);
  if (is_close(now, before) || is_close(now, was.at(step + 1))) return {};
  std::string text = section.name + ": the learning rate jumps from " + rate_text(before) + " at step " +
                     std::to_string(step) + " to " + rate_text(now) + " at step " + std::to_string(step + 1);
  if (!is_close(Course{is.optimizer, was.steps}.at(step + 1), was.at(step + 1))) return text;
  text += "; train.schedule_steps = " + std::to_string(was.steps) + " keeps the earlier schedule";
  if (was.ends_before(step + 1)) text += ", which stays at min_lr = " + number_text(was.optimizer.min_lr);
  return text;
}

}  // namespace

std::int64_t steps_of_epochs(const TrainConfig& train, std::uint64_t samples) {
  const double steps = std::ceil(train.epochs * static_cast<double>(samples) / static_cast<double>(train.global_batch));
  if (steps <= static_cast<double>(most_counted)) return std::max<std::int64_t>(static_cast<std::int64_t>(steps), 1);
  throw JobError("train.epochs = " + number_text(train.epochs) + " gives more steps than a run can have");
}

std::vector<std::string> schedule_notes(const ResolvedJob& plan) {
  std::vector<std::string> notes;
  for (const SectionConfig* section : trained_sections(plan)) {
    const Course course{section->optimizer, scheduled_steps(plan)};
    const std::int64_t run_steps = plan.train.steps - plan.stage.begin;
    if (course.optimizer.lr == 0) continue;
    if (course.optimizer.schedule == LearningRateSchedule::constant && course.optimizer.min_lr > 0) {
      notes.push_back(section->name + ".min_lr = " + number_text(course.optimizer.min_lr) +
                      " is ignored: the schedule is constant");
    }
    if (course.optimizer.warmup_steps >= run_steps) {
      notes.push_back(warmup_note(*section, course, run_steps));
    } else if (course.ends_before(run_steps)) {
      const double end = course.optimizer.min_lr;
      notes.push_back(section->name + ": the learning rate is min_lr = " + number_text(end) + " after step " +
                      std::to_string(std::max(course.steps, course.optimizer.warmup_steps + 1)) + " of " +
                      std::to_string(run_steps) + ", by train.schedule_steps = " + std::to_string(course.steps) +
                      (end == 0 ? ": nothing is learned afterwards" : ""));
    }
  }
  return notes;
}

std::vector<std::string> rate_jumps(const ResolvedJob& plan, const Manifest& stored) {
  std::vector<std::string> lines;
  const auto step = static_cast<std::int64_t>(stored.step);
  if (stored.settings.empty() || step == 0 || step >= plan.train.steps || plan.stage.given()) return lines;
  try {
    const std::int64_t steps = stored_schedule_steps(plan, stored);
    for (const SectionConfig* section : trained_sections(plan)) {
      const JobDocument table = stored_table(stored, section->name, {"lr", "min_lr", "warmup_steps", "schedule"});
      const Course was{read_optimizer(table.root()), steps};
      std::string line = jump_of(*section, was, {section->optimizer, plan.train.scheduled_steps()}, step);
      if (!line.empty()) lines.push_back(std::move(line));
    }
  } catch (const JobError& problem) {  // a checkpoint of another version
    lines.push_back(std::string("the checkpoint's learning rates are unknown: ") + problem.what());
  }
  return lines;
}

}  // namespace maestro
