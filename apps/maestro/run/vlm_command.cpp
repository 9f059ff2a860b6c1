// SPDX-License-Identifier: Apache-2.0
// `maestro vlm`: a vision-language model, end to end, and a card with its answers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>

#include "actors/job/resolved_job.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "apps/maestro/run/end_lines.hpp"
#include "apps/maestro/run/given_model.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "apps/maestro/run/train_job.hpp"
#include "apps/maestro/watch/card_files.hpp"
#include "apps/vlm/answers.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/synthetic/scene_dataset.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/vision_part.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/record/run_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

struct VisionLanguageArguments {
  std::string model;                 ///< folder or name on the hub; empty: a small model with random values
  std::filesystem::path data;        ///< conversations; empty: scenes that are drawn
  std::filesystem::path images;      ///< folder of their images; empty: "images" next to the file
  std::filesystem::path validation;  ///< conversations for validation; empty: a part of `data`
  std::filesystem::path out = "runs";
  std::optional<std::int64_t> steps;     ///< absent: as in the bundled job
  std::optional<std::int64_t> sequence;  ///< tokens of a sample of a given model; absent: the most that it takes
  std::string trained;                   ///< sections of a given model; empty: the projectors and the language model
  std::int64_t seed = 1;
  std::int64_t shown = 12;  ///< validation images on the card
  std::vector<std::string> overrides;
  RunOptions run;
};

constexpr const char* model_section = "llm";
/// The sections of a model for images and sounds; of other models the first, the second and the last.
constexpr std::array<std::string_view, 5> all_sections{"vision", "projector", "audio", "audio_projector", "llm"};
constexpr std::int64_t longest_sequence = 8192;  // tokens of a sample, if the model takes as many

std::string setting(const char* key, const fs::path& path) {
  return std::string(key) + "=" + quoted(fs::absolute(path).lexically_normal().string());
}

/// Returns the settings for the conversations' files; draws the scenes if no conversations are given.
std::vector<std::string> data_settings(const VisionLanguageArguments& arguments, const fs::path& folder,
                                       Console& console) {
  if (!arguments.data.empty()) {
    std::vector<std::string> settings{setting("data.path", arguments.data)};
    if (arguments.model.empty()) settings.emplace_back("data.validation_path=\"\"");
    if (!arguments.validation.empty()) settings.push_back(setting("data.validation_path", arguments.validation));
    if (!arguments.images.empty()) settings.push_back(setting("data.images", arguments.images));
    return settings;
  }
  RunFolder(folder).check_free().or_throw();  // a run that lasts reads the scenes there
  SceneDatasetOptions options;
  options.scenes.seed = static_cast<std::uint64_t>(arguments.seed);
  console.note("[1/3] drawing " + std::to_string(options.train_samples) + " scenes to learn from and " +
               std::to_string(options.validation_samples) + " for validation");
  const SceneDataset scenes = write_scene_dataset(folder / "scenes", options);
  if (!scenes.written) console.note("  " + (folder / "scenes").string() + " holds them already");
  return {setting("data.path", scenes.train), setting("data.validation_path", scenes.validation)};
}

/// Returns whether a given model reads images and sounds.
bool reads_both(const std::string& folder) {
  const std::string type = vision_language_type(folder);
  return has_image_part(type) && has_sound_part(type);
}

/// Returns the settings of a given model: its sections, and the processor of its images.
std::vector<std::string> model_settings(const VisionLanguageArguments& arguments) {
  const std::string folder = model_folder("--model", arguments.model);
  const bool both = reads_both(folder);
  std::vector<std::string> sections(all_sections.begin(), all_sections.end());
  if (!both) std::erase_if(sections, [](const std::string& name) { return name.starts_with("audio"); });
  std::string known;
  for (const std::string& section : sections) known += (known.empty() ? "" : ",") + section;
  std::vector<std::string> trained;
  std::stringstream names(!arguments.trained.empty() ? arguments.trained
                          : both                     ? "projector,audio_projector,llm"
                                                     : "projector,llm");
  for (std::string name; std::getline(names, name, ',');) {
    if (std::ranges::find(sections, name) == sections.end()) {
      throw JobError("--train: \"" + printable(name) + "\" is not a section; give some of " + known);
    }
    trained.push_back(name);
  }
  if (trained.empty()) throw JobError("--train: names no section; give some of " + known);
  std::vector<std::string> settings;
  for (const std::string& section : sections) {
    const bool learns = std::ranges::find(trained, section) != trained.end();
    settings.push_back(section + ".weights=" + quoted(folder));
    settings.push_back(section + ".trained=" + (learns ? "true" : "false"));
  }
  const std::int64_t sequence = arguments.sequence.value_or(std::min(longest_sequence, positions_of(folder)));
  settings.push_back("data.sequence=" + std::to_string(sequence));
  const DataKind kind = kind_of_data(arguments.data.string());
  settings.push_back("data.kind=" + quoted(std::string(name_of(kind == DataKind::text ? DataKind::chat : kind))));
  settings.push_back("data.processor=" + quoted(folder));
  return settings;
}

TrainArguments training_of(const VisionLanguageArguments& arguments, const fs::path& folder, Console& console) {
  TrainArguments job;
  const bool both = !arguments.model.empty() && reads_both(model_folder("--model", arguments.model));
  job.job = bundled_jobs() / "vlm" / (arguments.model.empty() ? "vlm.toml" : both ? "omni.toml" : "model.toml");
  job.overrides = data_settings(arguments, folder, console);
  if (!arguments.model.empty()) std::ranges::copy(model_settings(arguments), std::back_inserter(job.overrides));
  if (arguments.steps) job.overrides.push_back("train.steps=" + std::to_string(*arguments.steps));
  job.overrides.push_back("train.seed=" + std::to_string(arguments.seed));
  job.overrides.push_back("train.out=" + quoted(folder.string()));
  job.overrides.insert(job.overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  job.run = arguments.run;
  job.run.fresh = job.run.resume.empty();  // repeated runs are common; files of an earlier run stay
  const fs::path out = output_folder(job);
  if (job.run.report.empty()) job.run.report = out / "report.json";
  if (job.run.trace.empty()) job.run.trace = out / "trace.json";
  return job;
}

void print_validation(const RunResult& result, Console& console) {
  const auto found = result.validation.find(model_section);
  if (found == result.validation.end()) return;
  const std::map<std::string, double>& metrics = found->second;
  console.note("");
  console.note("validation, on samples outside the training");
  if (metrics.contains("exact_match")) console.note("  exact match         " + percent(metrics.at("exact_match"), 1));
  if (metrics.contains("ce")) console.note("  ce                  " + fixed(metrics.at("ce"), 4) + " nats per token");
}

/// The answers on the card come from the weights of the last checkpoint.
void check_keeps_weights(const JobDocument& job) {
  const JobTable train = job.root().table("train");
  if (train.flag("checkpoint_at_end", true)) return;
  train.fail("checkpoint_at_end",
             "the card needs the trained weights for its answers; leave it true, or use maestro train");
}

int run_vlm(const VisionLanguageArguments& arguments, Console& console) {
  const fs::path folder = arguments.out / "vlm";
  const TrainArguments training = training_of(arguments, folder, console);
  const JobDocument job = JobDocument::load(training.job, training.overrides);
  check_keeps_weights(job);
  console.note("[2/3] training");
  RunResult result = train(training, console);
  if (arguments.model.empty()) result.resume.clear();  // the command begins anew
  if (result.status != 0) return result.status;
  if (result.interrupted) {
    print_summary(result, console);
    return 0;
  }

  console.note("[3/3] generating answers, and writing the card");
  AnswerOptions options;
  options.with_pictures = arguments.shown;
  options.without = std::min<std::int64_t>(std::max<std::int64_t>(arguments.shown / 6, 0), 500);
  CardOptions card;
  card.trace = training.run.trace;
  card.checkpoints = 0;  // the answers are its texts
  card.answers = answer_samples(job, result.weights, options);
  print_validation(result, console);
  print_summary(result, console);
  end_with_card(training, card, console);
  return 0;
}

}  // namespace

void add_vlm(Commands& commands) {
  const auto [command, arguments] = commands.add(
      "vlm", "train a vision-language model: a given one, or a small one on drawn scenes, and show its answers",
      run_vlm);
  CLI::Option* data = command.add_option("--data", arguments.data,
                                         "conversations about images: JSON, JSON Lines, Parquet, tar, or a folder of "
                                         "these; with --model also from `maestro prepare` (default: drawn scenes)");
  CLI::Option* model =
      command
          .add_option("--model", arguments.model,
                      "the model: the folder of a model for images, sounds or both, or its name in the hub's "
                      "cache (default: a small model with random values)")
          ->needs(data);
  command.add_option("--steps", arguments.steps, "steps of the training")->check(whole_number(1));
  command
      .add_option("--train", arguments.trained,
                  "the sections of the model that learn, of vision,projector,llm, and for images and sounds also "
                  "audio,audio_projector (default: all but vision and audio)")
      ->needs(model);
  command
      .add_option("--sequence", arguments.sequence,
                  "tokens of a sample at most (default: 8192, or the most that the model takes)")
      ->check(whole_number(1))
      ->needs(model);
  command
      .add_option("--images", arguments.images, "folder of their images or sounds (default: images next to the file)")
      ->needs(data);
  command.add_option("--validation", arguments.validation, "conversations to validate with (default: some of --data)")
      ->needs(data)
      ->excludes(model);
  command.add_option("--out", arguments.out, "folder for scenes, weights, report, trace and card");
  command.add_option("--seed", arguments.seed, "random seed")->check(whole_number(0));
  command.add_option("--shown", arguments.shown, "validation images on the card")->check(whole_number(0, 10000));
  command.add_option("--set", arguments.overrides, "override a key of the job")->allow_extra_args(false);
  add_start_options(command, arguments.run);
  command.get_option("--resume")->needs(model);
  add_run_options(command, arguments.run);
}

}  // namespace maestro
