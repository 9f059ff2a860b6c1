// SPDX-License-Identifier: Apache-2.0
// Writes the record of a run (RunLog) during the run: lines of finished steps and events, on the thread that writes
// checkpoints, so that a slow disk delays no actor. Also writes TensorBoard's curves, if the job wants them.
//
// JN-1 (before the checkpoint): the lines of all steps up to a checkpoint are written before the checkpoint is
//       committed, so a run that continues from it has them.
// JN-2 (no figure changes): the run does not depend on the record. After a line that could not be written the record
//       ends, and a warning names the file and the reason; the same holds for the curves.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/run/record/run_record.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/observe/run_observer.hpp"
#include "runtime/observe/tensorboard.hpp"
#include "runtime/record/run_log.hpp"
#include "runtime/schedule/data_cursor.hpp"

namespace maestro {

/// A finished training step, with the values for its line.
struct FinishedStep {
  StepId step;
  std::vector<StepRow> sections;
  StepSamples counts;
  std::string samples_digest;  ///< digest of the samples read (digest_of)
  SchedulingRow times;
  std::map<std::string, LaneTimes> lanes = {};  ///< lane times by "section/replica"
  MadeSamples made = {};
};

/// Returns a digest of the sample ids and their order, 16 hexadecimal digits. `made`: MadeSamples::digest; 0: no sample
/// is made.
[[nodiscard]] std::string digest_of(const std::vector<SampleRef>& samples, std::uint64_t made = 0);

/// Returns {"step", "time", "samples", "tokens", "samples_digest", members of SchedulingRow, "made": {"most_tokens",
/// "lengths"} if there are made samples (length_histogram()), "lanes":
/// {"section/replica": {"busy_ms", "step_end_ms", "wait_ms": {reason: ms}}}, "sections": {section: {metric: value}}}.
/// Sections' figures read back bitwise the same.
[[nodiscard]] std::string line_of(const FinishedStep& step, std::chrono::system_clock::time_point now);

/// A start of a run, fresh or from a checkpoint: the content of its event.
struct RunStart {
  std::uint64_t first_step = 1;
  std::string resumed_from;  ///< a checkpoint; empty: none
  std::string run_id;
  std::string maestro_version;
  std::string build;  ///< build_id(); empty: unknown
  std::string instruction_set;
  std::int64_t processes = 1;               ///< number of processes
  std::int64_t cpu_devices = 0;             ///< number per host
  std::vector<std::string> lanes;           ///< "section 'student' replica 0 on cpu:0 of process 0"
  std::map<std::string, std::string> data;  ///< data_fingerprint()
  std::vector<DataCursor::Segment> cursor;  ///< DataCursor::segments()
  std::string job_file;                     ///< the job with its overrides, TOML
};
/// Returns {"event": "began", "time", ...} with the names of the members.
[[nodiscard]] std::string line_of(const RunStart& start, std::chrono::system_clock::time_point now);
/// Returns the starts of a record, in their order. Errors name the file.
[[nodiscard]] Result<std::vector<RunStart>> recorded_starts(const std::filesystem::path& record);
/// Returns the start that trained `step`: the last whose first step is not later, as later starts repeat steps. Null:
/// none.
[[nodiscard]] const RunStart* start_of(const std::vector<RunStart>& starts, std::uint64_t step);
/// Returns the start that trained `step`, from a record. Errors name the file: not_found if no start did.
[[nodiscard]] Result<RunStart> start_of_step(const std::filesystem::path& record, std::uint64_t step);
/// Returns the samples_digest of a step. Errors name the file and its steps.
[[nodiscard]] Result<std::string> recorded_digest(const std::filesystem::path& record, std::uint64_t step);

/// Rows for the report.
struct ReportRows {
  RowSource steps;       ///< {"section", "step", metric: value, ...}
  RowSource scheduling;  ///< {"step", members of SchedulingRow}
};
/// Returns the rows of a record on disk for the steps after `after`, up to `last`.
[[nodiscard]] ReportRows recorded_rows(const std::filesystem::path& record, std::uint64_t after, std::uint64_t last);
/// Returns the rows that are in memory. The record of the run outlives them.
[[nodiscard]] ReportRows rows_in_memory(const RunRecord& record);

/// Names and values.
using EventFields = std::vector<std::pair<std::string, ReportValue>>;
/// Returns {"event", "time", ...}.
[[nodiscard]] std::string line_of(const std::string& event, const EventFields& fields,
                                  std::chrono::system_clock::time_point now);

/// Thread-safe. The writer and the console outlive it.
class RunJournal {
 public:
  /// `observers` receive each line after the files (OV-1).
  RunJournal(RunLog log, std::optional<TensorBoardWriter> board, SnapshotWriter& writer, Console& console,
             std::vector<NamedObserver> observers = {});
  /// Appends a line about the samples that generators made.
  void made_samples(std::string line);
  void began(const RunStart& start);
  void step(const FinishedStep& step);
  void validated(const StepRow& row);
  void event(const std::string& event, const EventFields& fields);
  /// Waits until the lines so far are written, at most this long. Returns whether the record has all of them; nothing
  /// if the time is over or the writer has stopped.
  std::optional<bool> flush(std::chrono::milliseconds patience);

 private:
  /// State of the writer's thread, which may outlive the journal.
  struct Shared {
    RunLog log;
    std::optional<TensorBoardWriter> board;
    Console& console;
    std::vector<NamedObserver> named;  // observers that are not made yet
    std::vector<std::pair<std::string, std::unique_ptr<RunObserver>>> observers;
    bool failed = false;
    void observe(const std::function<void(RunObserver&)>& call);
    void check(const Status& written);
    void draw(const std::vector<StepRow>& rows, const std::string& prefix, std::chrono::system_clock::time_point now);
  };
  void run(std::function<void(Shared&)> work);
  void append_event(std::string line);

  std::shared_ptr<Shared> shared_;
  SnapshotWriter& writer_;
};

}  // namespace maestro
