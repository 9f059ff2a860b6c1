// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/watch/card_files.hpp"

#include <algorithm>
#include <map>

#include "apps/maestro/models/continuations.hpp"
#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/run_card.hpp"
#include "runtime/page/run_page.hpp"
#include "runtime/page/run_reader.hpp"
#include "runtime/record/run_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t timeline_steps = 3;

/// Removes " of process 0" from the devices of a run in a single process.
void shorten_devices(std::vector<TimelineLane>& lanes) {
  constexpr std::string_view first = " of process 0";
  const auto there = [&](const TimelineLane& lane) { return lane.device.ends_with(first); };
  if (!std::ranges::all_of(lanes, there)) return;
  for (TimelineLane& lane : lanes) lane.device.resize(lane.device.size() - first.size());
}

Timeline timeline_of(const fs::path& trace, const RunPage& page, Console& console) {
  std::error_code failure;
  if (!fs::is_regular_file(trace, failure)) return {};
  std::vector<TimelineLane> lanes = lanes_of(page.lanes);
  shorten_devices(lanes);
  Result<Timeline> timeline = read_timeline(trace, std::move(lanes), timeline_steps);
  if (timeline) {
    timeline->sections = sections_of(page);
    return std::move(*timeline);
  }
  console.warning("card: " + timeline.error().message + "; the card lacks a timeline");
  return {};
}

/// Returns at most `most` of the checkpoints, evenly spread, including the last.
std::vector<CheckpointFolder> spread(const std::vector<CheckpointFolder>& all, std::size_t most) {
  const std::size_t wanted = std::min(all.size(), most);
  std::vector<CheckpointFolder> out;
  for (std::size_t at = 1; at <= wanted; ++at) out.push_back(all[at * all.size() / wanted - 1]);
  return out;
}

std::vector<fs::path> models_in(const fs::path& checkpoint) {
  std::vector<fs::path> out;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint, failure)) {
    if (fs::exists(entry.path() / "config.json", failure) ||
        fs::exists(entry.path() / "adapter_config.json", failure)) {
      out.push_back(entry.path());
    }
  }
  std::ranges::sort(out);
  return out;
}

/// Continues the prompts with the models of checkpoints.
void add_texts(RunPage& page, const fs::path& run, const CardOptions& options) {
  const auto folders = list_checkpoint_folders(run / "checkpoints");
  if (!folders || options.checkpoints == 0) return;
  const std::vector<CheckpointFolder> all = loadable(*folders);
  const std::vector<CheckpointFolder> chosen = spread(all, static_cast<std::size_t>(options.checkpoints));
  std::map<std::string, std::string> silent;  // the newest reason by section
  for (const CheckpointFolder& checkpoint : chosen) {
    for (const fs::path& model : models_in(checkpoint.path)) {
      const std::string section = model.filename().string();
      try {
        const std::vector<std::string> texts = continuations_of(model.string(), options.prompts);
        for (std::size_t at = 0; at < texts.size(); ++at) {
          page.texts.push_back({options.prompts[at], section, checkpoint.step, in_quotes(texts[at])});
        }
      } catch (const JobError& problem) {
        silent[section] = problem.what();
      }
    }
  }
  std::ranges::stable_sort(page.texts, {}, [&](const RunText& text) {
    return std::pair(std::ranges::find(options.prompts, text.prompt), text.section);
  });
  page.texts_remark = "The likeliest " + std::to_string(continuation_tokens) +
                      " tokens after each prompt, by the models of " + std::to_string(chosen.size()) + " of " +
                      std::to_string(all.size()) + " checkpoints on disk.";
  for (const auto& [section, reason] : silent) page.texts_remark += " None by " + section + ": " + reason + ".";
}

}  // namespace

CardFiles write_card(const fs::path& run, const CardOptions& options, Console& console) {
  RunPage page = read_run_page(run).value_or_throw();
  if (page.state == RecordedState::under_way && RunFolder(run).check_free()) page.state = RecordedState::cut_off;
  page.timeline = timeline_of(options.trace.empty() ? run / "trace.json" : options.trace, page, console);
  add_texts(page, run, options);
  page.answers = options.answers;
  const fs::path folder = options.out.empty() ? run : options.out;
  const CardFiles files{folder / "card.md", folder / "card.html"};
  write_output(files.card, card_of(page)).or_throw();
  write_output(files.page, page_of(page)).or_throw();
  return files;
}

void end_with_card(const TrainArguments& job, const CardOptions& options, Console& console) {
  try {
    const fs::path run = read_train(JobDocument::load(job.job, job.overrides).root().table("train")).out;
    const CardFiles files = write_card(run, options, console);
    console.note("card");
    console.note("  page                " + files.page.string() + "   (open in a browser)");
    console.note("  text                " + files.card.string());
  } catch (const JobError& problem) {
    console.warning(std::string("the run's card was not written: ") + problem.what());
  }
}

}  // namespace maestro
