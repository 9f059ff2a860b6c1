// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_progress.hpp"

#include <cstdlib>
#include <limits>

#include "runtime/core/json_value.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/training_stages.hpp"
#include "runtime/record/run_folder.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns train.steps of a job, or the steps of its stages; 0 without it, and for a job that this version does not
/// read.
std::uint64_t steps_of(const std::string& job) {
  try {
    const JobDocument document = JobDocument::parse(job, "the job of the record");
    const TrainingStages stages = TrainingStages::read(document.root());
    if (stages.given()) return static_cast<std::uint64_t>(stages.steps());
    const auto settings = document.settings();
    const auto steps = settings.find("train.steps");
    return steps == settings.end() ? 0 : std::strtoull(steps->second.c_str(), nullptr, 10);
  } catch (const JobError&) {
    return 0;
  }
}

void take_event(const JsonValue& line, RunProgress& progress) {
  const std::string kind = line.at("event").text();
  if (kind == "began") {
    progress.state = RecordedState::under_way;
    progress.error.clear();
    progress.steps = steps_of(line.at("job_file").text());
  } else if (kind == "failed") {
    progress.state = RecordedState::failed;
    progress.error = line.at("error").text("");
  } else if (kind == "finished") {
    const bool interrupted = line.at("interrupted").flag(false);
    progress.state = interrupted ? RecordedState::interrupted : RecordedState::finished;
  }
}

void take_step(const JsonValue& line, RunProgress& progress) {
  progress.step = line.at("step").count();
  for (const auto& [section, metrics] : line.at("sections").members()) {
    const JsonValue loss = metrics.at("loss");
    if (!loss) continue;
    progress.losses[section] = loss.null() ? std::numeric_limits<double>::quiet_NaN() : loss.number();
  }
}

/// Reads the lines of a file with `read`.
template <class Read>
Status take_lines(const std::vector<std::string>& lines, const fs::path& file, RunProgress& progress,
                  const Read& read) {
  for (const std::string& text : lines) {
    const Result<bool> taken = read_json(text, file.string(), ErrorCode::corrupt, [&](const JsonValue& line) {
      read(line, progress);
      return true;
    });
    if (!taken) return taken.error();
  }
  return {};
}

}  // namespace

Result<RunProgress> read_run_progress(const fs::path& run_folder) {
  const fs::path record = run_folder / record_folder;
  std::error_code failure;
  if (!fs::is_directory(record, failure)) {
    return Error{ErrorCode::not_found, run_folder.string() + " does not hold the record of a run"};
  }
  RunProgress progress;
  const auto events = read_record(record / events_file);
  if (!events) return events.error();
  if (const Status taken = take_lines(*events, record / events_file, progress, take_event); !taken) {
    return taken.error();
  }
  const auto steps = read_record_end(record / steps_file, 1);
  if (!steps) return steps.error();
  if (const Status taken = take_lines(*steps, record / steps_file, progress, take_step); !taken) return taken.error();
  if (progress.state == RecordedState::under_way && RunFolder(run_folder).check_free()) {
    progress.state = RecordedState::cut_off;
  }
  return progress;
}

}  // namespace maestro
