// SPDX-License-Identifier: Apache-2.0
// `maestro replay RUN --steps A..B`: trains steps of a run again and compares them with its record, bit by bit.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ostream>
#include <vector>

#include "actors/job/lane_text.hpp"
#include "actors/process/start_point.hpp"
#include "actors/run/record/step_difference.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "apps/maestro/run/recorded_job.hpp"
#include "runtime/checkpoint/checkpoint_archive.hpp"
#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/core/build_id.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/scratch_folder.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro {

namespace {

struct ReplayArguments {
  std::filesystem::path run;
  std::string steps;
  bool check = false;
  std::filesystem::path out;
  PlugInChoice plug_ins;
};

namespace fs = std::filesystem;

struct StepRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  [[nodiscard]] std::string text() const { return std::to_string(first) + " to " + std::to_string(last); }
};

/// Parses "10..20" or "10". Throws JobError.
StepRange parse_steps(const std::string& text) {
  StepRange range;
  const char* const end = text.data() + text.size();
  auto [at, failure] = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  const std::string_view rest(at, end);
  if (failure == std::errc() && rest.starts_with("..")) {
    const auto [behind, wrong] = std::from_chars(at + 2, end, range.last);
    at = behind;
    failure = wrong;
  }
  if (failure != std::errc() || at != end || range.first < 1 || range.last < range.first) {
    throw JobError("--steps " + printable(text) + ": write the first and the last step, such as 10..20");
  }
  return range;
}

/// Returns the lines of these steps. Throws JobError if one is missing.
std::vector<std::string> recorded_lines(const fs::path& record, const StepRange& steps) {
  const fs::path file = record / steps_file;
  std::vector<std::string> lines;
  std::uint64_t first = 0, last = 0;
  for_whole_lines(file, [&](std::string_view line, std::uint64_t) {
    const std::uint64_t step = step_of_line(line);
    if (first == 0) first = step;
    last = step;
    if (step >= steps.first && step <= steps.last) lines.emplace_back(line);
    return true;
  }).or_throw();
  if (lines.size() == steps.last - steps.first + 1) return lines;
  throw JobError(file.string() + " has steps " + StepRange{first, last}.text() + ", not all of " + steps.text());
}

/// Throws JobError unless all of these steps were trained by the start's job.
void check_same_job(const fs::path& record, const RunStart& start, const StepRange& steps) {
  const std::vector<RunStart> starts = recorded_starts(record).value_or_throw();
  for (std::uint64_t step = steps.first; step <= steps.last; ++step) {
    const RunStart* const other = start_of(starts, step);
    if (other != nullptr && other->job_file == start.job_file) continue;
    throw JobError("replay: steps from " + std::to_string(steps.first) +
                   " on would be trained again, the nearest checkpoint being before it, and step " +
                   std::to_string(step) + " was trained by another job");
  }
}

/// Returns the last checkpoint before these steps that leaves out the same samples as the start; nothing if only the
/// run's start does. Throws JobError if neither does.
std::optional<CheckpointFolder> checkpoint_to_start_from(const fs::path& run, const RunStart& start,
                                                         const StepRange& steps) {
  const DataCursor cursor = DataCursor::of(start.cursor).value_or_throw();
  const auto same_samples = [&](const Manifest& manifest) {
    const Result<DataCursor> stored = DataCursor::of(manifest.cursor);
    return stored && stored->agrees(cursor, steps.last);
  };
  const std::array<fs::path, 2> roots{run / "checkpoints", run / archive_folder};
  const auto found = checkpoint_before(roots, start.run_id, steps.first, same_samples);
  if (found) return parse_checkpoint_folder(*found);
  if (cursor.agrees(DataCursor(), steps.last)) return std::nullopt;
  throw JobError("replay: the run left out samples before step " + std::to_string(steps.last) +
                 ", and no remaining checkpoint before step " + std::to_string(steps.first) +
                 " leaves out the same samples");
}

/// Prints why bits may differ.
void warn_of_differences(const RunStart& start, const ResolvedJob& plan, Console& console) {
  const auto differs = [&](const std::string& what, const std::string& was, const std::string& is) {
    if (was == is || was.empty()) return;
    console.warning(what + " was " + printable(was) + ", is " + (is.empty() ? "unknown" : printable(is)) +
                    ": figures may differ by rounding");
  };
  differs("the build of maestro or a plug-in", start.build, build_id());
  differs("the instruction set", start.instruction_set, std::string(cpu::name_of(cpu::best_isa())));
  const std::vector<std::string> lanes = lanes_of(plan);
  for (std::size_t at = 0; at < std::max(lanes.size(), start.lanes.size()); ++at) {
    const auto text_of = [at](const std::vector<std::string>& all) { return at < all.size() ? all[at] : "nothing"; };
    if (text_of(lanes) == text_of(start.lanes)) continue;
    return differs("a lane", text_of(start.lanes), text_of(lanes));
  }
}

/// Returns the settings that differ from the run; none of them changes a step. Skipped steps are skipped again (NG-1).
std::vector<std::string> overrides_of(const JobDocument& job, const fs::path& out, bool checkpoint_at_end) {
  const bool skips = read_guard(job.root().table("guard")).action == GuardAction::skip;
  return {"train.out=" + quoted(out.string()),
          "train.validate_every=0",
          "train.shadow_every=0",
          "train.recover=\"off\"",
          "train.export=\"none\"",
          std::string("guard.action=") + (skips ? "\"skip\"" : "\"note\""),
          std::string("train.checkpoint_at_end=") + (checkpoint_at_end ? "true" : "false")};
}

/// Writes the job for the other processes, and returns the arguments that start it.
std::vector<std::string> write_job(const fs::path& folder, const RunStart& start, const JobDocument& job) {
  const fs::path file = folder / "job.toml";
  write_output(file, job.to_toml()).or_throw();
  return {"train", file.string(), "--cpu-devices", std::to_string(start.cpu_devices)};
}

/// Continues from the last checkpoint before the first step, or begins as the run did, in a separate folder. Prints the
/// first figure that differs, and then returns 1.
int run_replay(const ReplayArguments& arguments, Console& console) {
  const StepRange steps = parse_steps(arguments.steps);
  const fs::path record = arguments.run / record_folder;
  const std::vector<std::string> recorded = recorded_lines(record, steps);
  const RunStart start = start_of_step(record, steps.first).value_or_throw();
  StepDigests digests = recorded_digests(record).value_or_throw();
  std::erase_if(digests, [&](const auto& of) { return of.first < steps.first || of.first > steps.last; });
  const std::optional<CheckpointFolder> from = checkpoint_to_start_from(arguments.run, start, steps);
  check_same_job(record, start, {from ? from->step + 1 : 1, steps.last});

  std::optional<ScratchFolder> scratch;  // next to the record, if the user has named no folder
  if (arguments.out.empty()) scratch.emplace(arguments.run, "replay", "name one with --out");
  const fs::path folder = scratch ? scratch->path() : arguments.out;
  RunOptions options;
  options.processes = start.processes;
  options.cpu_devices = start.cpu_devices;
  options.quiet = true;
  options.control = "none";
  options.until = steps.last;
  if (from) options.resume = from->path;
  std::ostream nowhere(nullptr);
  ConsoleStreams streams = standard_streams();
  Console progress({nowhere, streams.err, streams.live, streams.columns});
  options.replayed = record;
  const JobDocument recorded_job = JobDocument::parse(start.job_file, (record / events_file).string());
  const std::vector<std::string> overrides = overrides_of(recorded_job, folder, digests.contains(steps.last));
  JobDocument job = recorded_document(record, start, overrides, arguments.plug_ins);
  options.command = write_job(folder, start, job);
  if (from) options.command.insert(options.command.end(), {"--resume", from->path.string()});
  App app = job_app(std::move(job), std::move(options), progress);
  const ResolvedJob plan = app.plan();
  if (const std::string other = changed_data(start, data_fingerprint(plan)); !other.empty()) {
    throw JobError("replay: steps " + steps.text() + " were trained on other data than there is now: " + other);
  }
  warn_of_differences(start, plan, console);
  console.note("steps " + steps.text() + ", from " +
               (from ? from->path.string() : std::string("the start of the run")));
  const RunResult result = app.run();
  progress.finish();
  if (result.status != 0) return result.status;
  if (result.interrupted) {
    console.error("replay: interrupted after step " + std::to_string(result.last_step) + "; nothing was compared");
    return 1;
  }

  const fs::path again = folder / record_folder;
  const std::vector<std::string> lines = recorded_lines(again, steps);
  std::optional<std::string> first;
  for (std::size_t at = 0; at < recorded.size(); ++at) {
    const std::optional<std::string> difference = step_difference(recorded[at], lines[at]).value_or_throw();
    if (!first) first = difference;
    if (arguments.check) continue;
    console.note("step " + std::to_string(steps.first + at) + ": " + losses_of(lines[at]) +
                 (difference ? "; recorded: " + losses_of(recorded[at]) : ", the same bits"));
  }
  if (!first) first = digest_difference(digests, recorded_digests(again).value_or_throw());
  if (first) {
    console.error("replay: " + *first);
    return 1;
  }
  console.note("steps " + steps.text() + " are the same to the bit: samples, figures" +
               (digests.empty()
                    ? ""
                    : ", and the state of all trained sections after step " + std::to_string(digests.rbegin()->first)));
  return 0;
}

}  // namespace

void add_replay(Commands& commands) {
  const auto [command, arguments] =
      commands.add("replay", "train steps of a run again and compare them with its record", run_replay);
  command.add_option("run", arguments.run, "the run's folder, train.out")->required();
  command.add_option("--steps", arguments.steps, "the first and the last step, such as 10..20")->required();
  command.add_flag("--check", arguments.check, "print only the verdict, not every step");
  command.add_option("--out", arguments.out, "train in this folder, and keep it (default: a folder that is removed)");
  add_plug_in_options(command, arguments.plug_ins);
}

}  // namespace maestro
