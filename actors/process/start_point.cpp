// SPDX-License-Identifier: Apache-2.0
#include "actors/process/start_point.hpp"

#include <algorithm>
#include <chrono>

#include "actors/job/learning_rates.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/process/job_start.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/core/iso_time.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/model/weights_fingerprint.hpp"
#include "runtime/record/run_list.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

/// Returns a text with both values if users can compare them; otherwise only that they differ.
std::string changed(const std::string& name, const std::string& was, const std::string& is) {
  if (name == "content") return "content differs";
  if (name.starts_with("weights of") || name.starts_with("records of")) return name + " differ";
  return name + " = " + is + ", was " + was;
}

/// Compares the names that both sides have, as versions may record different names.
std::string changed_data(const Manifest& stored, const Manifest& now) {
  std::string text;
  for (const auto& [name, was] : stored.data) {
    const auto is = now.data.find(name);
    if (is == now.data.end() || is->second == was) continue;
    text += (text.empty() ? "" : "; ") + changed(name, was, is->second);
  }
  return text;
}

/// Throws JobError if the first step's samples are made with weights that the checkpoint lacks.
void check_earlier_weights(const ResolvedJob& plan, const StartPoint& start) {
  if (!plan.rollouts || !plan.rollouts->section) return;
  const std::int64_t staleness = plan.rollouts->config.staleness;
  const std::string& section = plan.graph.node(plan.graph.registers().front().from).section_name();
  const StepId oldest = version_of(StepId(start.first_step), staleness);
  std::int64_t most = 0;  // that the checkpoint has weights for
  for (std::uint64_t step = oldest.value(); step < start.first_step; ++step) {
    if (!has_earlier_weights(start.stored, section, step)) continue;
    most = std::max(most, static_cast<std::int64_t>(start.first_step - step));
  }
  if (oldest.value() + static_cast<std::uint64_t>(most) >= start.first_step) return;
  throw JobError(start.checkpoint.string() + " lacks the weights before step " + std::to_string(oldest.value()) +
                 ", which generator.staleness = " + std::to_string(staleness) + " needs; it allows at most " +
                 std::to_string(most));
}

constexpr std::string_view weights_setting = ".weights";

/// Differences between the settings of a checkpoint and of the job that continues from it.
class ChangedSettings {
 public:
  ChangedSettings(const std::string& checkpoint, const Manifest& stored, const Manifest& now)
      : checkpoint_(checkpoint), stored_(stored), now_(now) {}

  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    const auto add = [&](const std::string& key, std::string text) {
      if (is_compared(key)) lines.push_back(key + std::move(text) + end_of_line(key));
    };
    for (const auto& [key, was] : stored_.settings) {
      const auto is = now_.settings.find(key);
      if (is == now_.settings.end()) {
        add(key, " is not set, was " + printable(was));
      } else if (is->second != was) {
        add(key, " = " + printable(is->second) + ", was " + printable(was));
      }
    }
    for (const auto& [key, is] : now_.settings) {
      if (!stored_.settings.contains(key)) add(key, " = " + printable(is) + ", was not set");
    }
    return lines;
  }

 private:
  /// Returns the section whose weights the key names; empty for other keys.
  static std::string section_of_weights(const std::string& key) {
    return key.ends_with(weights_setting) ? key.substr(0, key.size() - weights_setting.size()) : "";
  }
  /// Returns whether the key's values are compared. Data and frozen weights are compared by content, because their
  /// paths may change. Keys of [plan] are not compared, because they do not change the training.
  [[nodiscard]] bool is_compared(const std::string& key) const {
    const std::string section = section_of_weights(key);
    if (section.empty()) return key != "train.out" && !key.starts_with("plan.") && !key.starts_with("data.");
    const std::string content = weights_key(section);
    if (stored_.data.contains(content) && now_.data.contains(content)) return false;
    const auto is = now_.settings.find(key);  // if weights are gone, `maestro train` names the stored weights
    return is == now_.settings.end() || is->second.find(checkpoint_ + "/" + section) == std::string::npos;
  }
  [[nodiscard]] std::string end_of_line(const std::string& key) const {
    const std::string section = section_of_weights(key);
    const std::string content = weights_key(section);
    const bool frozen = stored_.data.contains(content) || now_.data.contains(content);
    return section.empty() || frozen ? "" : "; its values are not read, as the section continues from the checkpoint";
  }

  const std::string& checkpoint_;
  const Manifest& stored_;
  const Manifest& now_;
};

/// Removes the files that test whether hosts share the folder, left by a run that died meanwhile. While a process holds
/// the folder, other starts of the run cannot be in progress.
void sweep_shared_files(const fs::path& folder) {
  std::error_code failure;
  fs::directory_iterator entries(folder, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
    std::error_code ignored;  // a file that remains is harmless
    if (entries->path().filename().string().starts_with(shared_file_prefix)) fs::remove(entries->path(), ignored);
  }
}

/// Throws JobError if the job's weights are in the checkpoints or models that --fresh moves, as they would be missing.
void check_weights_stay(const ResolvedJob& plan) {
  const auto lies_in = [&](const fs::path& weights, const char* entry) {
    const fs::path moved = fs::weakly_canonical(fs::path(plan.train.out) / entry);
    return std::ranges::mismatch(moved, weights).in1 == moved.end();
  };
  for (const PlannedSection& section : plan.sections) {
    if (section.config.weights.empty()) continue;
    const fs::path weights = fs::weakly_canonical(section.config.weights);
    if (!lies_in(weights, "checkpoints") && !lies_in(weights, "models")) continue;
    throw JobError(section.config.name + ".weights: " + printable(section.config.weights) +
                   " is in the run that --fresh moves aside; choose another train.out, or name the weights elsewhere");
  }
}

/// Throws JobError if the checkpoint's step is of another stage in this job.
void check_stage(const ResolvedJob& plan, const Manifest& manifest, const std::string& name) {
  const auto stage_text = [](std::uint64_t stage) {
    return stage == 0 ? std::string("no stage") : "stage " + std::to_string(stage);
  };
  const std::uint64_t here = plan.stages.that_did(manifest.step);
  if (manifest.stage == here || manifest.step == 0) return;
  throw JobError(name + " is of step " + std::to_string(manifest.step) + " in " + stage_text(manifest.stage) +
                 " of its run, which is in " + stage_text(here) +
                 " here; resume with the [[stages]] of that run up to this step");
}

/// Adds a note about a run in the folder that would have a new run refused. Throws JobError for a folder that the
/// resumed run cannot use.
void note_run_in(const RunFolder& folder, const ResolvedJob& plan, const StartPoint& start, RunClaim& claim) {
  const bool resumed = !start.checkpoint.empty();
  Status refused = folder.check_free();
  if (refused && !plan.options.fresh) {
    refused = folder.check_holds_only(claim.origin.run.id, resumed);
    if (resumed) refused.or_throw();
  }
  if (!refused) claim.notes.push_back("`maestro train` refuses this job now: " + refused.error().message);
}

/// Adds the run to the list of `maestro runs`; a failure is a note.
void list(const ResolvedJob& plan, const std::optional<fs::path>& aside, RunClaim& claim) {
  Status listed = aside ? move_listed_run(plan.train.out, *aside) : Status();
  if (listed) listed = list_run({plan.train.out, plan.name, iso_time(std::chrono::system_clock::now())});
  if (!listed) claim.notes.push_back("`maestro runs` does not list this run: " + listed.error().message);
}

}  // namespace

std::size_t stage_of_start(const TrainingStages& stages, const fs::path& resume) {
  if (!stages.given() || resume.empty()) return 0;
  const auto checkpoint = resolve_checkpoint(resume);
  const auto manifest = checkpoint ? load_checkpoint(*checkpoint) : checkpoint.error();
  return manifest ? stages.after(manifest->step) : 0;  // find_start_point() reports errors
}

StartPoint find_start_point(const ResolvedJob& plan, const fs::path& resume) {
  StartPoint start;
  if (resume.empty()) return start;
  start.checkpoint = resolve_checkpoint(resume).value_or_throw();
  start.stored = load_checkpoint(start.checkpoint).value_or_throw();
  const Manifest& manifest = start.stored;
  verify_checkpoint(start.checkpoint).or_throw();
  const std::string name = start.checkpoint.string();
  const auto batch = static_cast<std::uint64_t>(plan.train.global_batch);
  if (manifest.seed != static_cast<std::uint64_t>(plan.train.seed)) {
    throw JobError(name + " was made with train.seed = " + std::to_string(manifest.seed) + ", the job has " +
                   std::to_string(plan.train.seed) + "; resume with the same seed");
  }
  if (manifest.step > static_cast<std::uint64_t>(plan.train.steps)) {
    if (plan.stage.given()) {
      throw JobError(name + " is of step " + std::to_string(manifest.step) + ", and the job's stages have " +
                     std::to_string(plan.train.steps) + " steps; lengthen the last stage, or resume from an earlier " +
                     "checkpoint");
    }
    const bool epochs = plan.train.epochs > 0;
    throw JobError(name + " is of step " + std::to_string(manifest.step) + ", and " +
                   (epochs ? "train.epochs = " + number_text(plan.train.epochs) + " makes " : "train.steps = ") +
                   std::to_string(plan.train.steps) + (epochs ? " steps" : "") + "; resume with " +
                   (epochs ? "more epochs" : "more steps") + ", or from an earlier checkpoint");
  }
  check_stage(plan, manifest, name);
  Result<DataCursor> cursor = DataCursor::of(manifest.cursor);
  if (!cursor) throw JobError(name + ": " + cursor.error().message);
  start.cursor = *std::move(cursor);
  if (start.cursor.segments().size() > 1) {
    if (manifest.data_position != start.cursor.position(manifest.step + 1, batch)) {
      throw JobError(name + " is of a run that has left out samples; train.global_batch = " + std::to_string(batch) +
                     " would skip or repeat samples: use the value of that run");
    }
  } else if (manifest.data_position != manifest.step * batch) {
    throw JobError(name + " is at sample " + std::to_string(manifest.data_position) + " after " +
                   std::to_string(manifest.step) + " steps; train.global_batch = " + std::to_string(batch) +
                   " would skip or repeat samples: use " +
                   std::to_string(manifest.data_position / std::max<std::uint64_t>(manifest.step, 1)));
  }
  start.first_step = manifest.step + 1;
  check_earlier_weights(plan, start);
  return start;
}

std::map<std::string, std::string> data_fingerprint(const ResolvedJob& plan) {
  std::map<std::string, std::string> data = plan.corpus->fingerprint();
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    const std::string& weights = plan.sections[index].config.weights;
    const bool keeps_weights = node.frozen() || plan.sections[index].config.lora.given();
    if (!keeps_weights || node.stage > 0) continue;
    const std::string origin = plan.meta_sections[index]->origin();
    if (!origin.empty()) data["records of section '" + node.section_name() + "'"] = origin;
    if (!fs::is_directory(weights)) continue;
    data[weights_key(node.section_name())] = weights_fingerprint(weights).value_or_throw();
  }
  return data;
}

std::vector<std::string> compare_origins(const std::string& name, const Manifest& stored, const Manifest& now,
                                         bool new_data) {
  std::vector<std::string> notes;
  if (stored.data.empty()) {
    notes.push_back(name + " lacks a fingerprint of its data: changed data cannot be detected");
  }
  const std::string other = changed_data(stored, now);
  if (!other.empty() && !new_data) {
    throw JobError(name + " was made with other data (" + other +
                   "), so samples would be skipped and repeated; resume with the same data, or with --new-data to "
                   "continue with the new data");
  }
  if (!other.empty()) notes.push_back("other data than before: " + other);
  if (stored.settings.empty()) return notes;
  std::ranges::move(ChangedSettings(name, stored, now).lines(), std::back_inserter(notes));
  return notes;
}

RunClaim claim_run(const ResolvedJob& plan, const StartPoint& start, const std::optional<RunIdentity>& earlier) {
  RunClaim claim;
  if (has_emulated(plan)) return claim;
  const bool resumed = !start.checkpoint.empty();
  claim.origin.run = resumed ? start.stored.run : earlier ? *earlier : new_run(plan.name);
  if (claim.origin.run.job.empty()) claim.origin.run.job = plan.name;  // from a version that did not record it
  claim.origin.data = data_fingerprint(plan);
  claim.origin.settings = plan.settings;
  claim.origin.stage = static_cast<std::uint64_t>(plan.stage.number);
  if (resumed) {
    claim.notes = compare_origins(start.checkpoint.string(), start.stored, claim.origin, plan.options.new_data);
    std::ranges::move(rate_jumps(plan, start.stored), std::back_inserter(claim.notes));
  }
  if (plan.options.fresh) check_weights_stay(plan);
  const RunFolder folder(plan.train.out);
  const std::string& run = claim.origin.run.id;
  if (plan.options.check_only) {
    note_run_in(folder, plan, start, claim);
    return claim;
  }
  claim.lock = folder.lock(plan.name).value_or_throw();
  if (!claim.lock.holds()) {
    claim.notes.push_back("train.out: the file system of " + plan.train.out +
                          " does not support locks; a second run in it would not be refused");
  }
  if (claim.lock.holds()) sweep_shared_files(plan.train.out);
  std::optional<fs::path> aside;
  if (plan.options.fresh) aside = folder.set_aside().value_or_throw();
  if (aside) claim.notes.push_back("the run that was in " + plan.train.out + " is now in " + aside->string());
  folder.check_holds_only(run, resumed).or_throw();
  folder.record(claim.origin.run).or_throw();
  list(plan, aside, claim);
  return claim;
}

}  // namespace maestro
