// SPDX-License-Identifier: Apache-2.0
// Writes the record of a run (RunLog) as it goes on: lines of finished steps and of events, on the thread that writes
// checkpoints, so that a slow disk delays no actor. Writes the curves of TensorBoard likewise, where they are wanted.
//
// JN-1 (before the checkpoint): the lines of all steps up to a checkpoint's are written before the checkpoint is
//       committed, so a run that goes on from it has them.
// JN-2 (no figure changes): the run does not depend on the record. After a line that could not be written the record
//       ends, and one warning names the file and the reason; the same holds for the curves.
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

/// A finished training step, as its line has it.
struct FinishedStep {
  StepId step;
  std::vector<StepRow> sections;
  StepCounts counts;
  std::string samples_digest;  ///< of the samples read (digest_of)
  SchedulingRow times;
  std::map<std::string, LaneTimes> lanes = {};  ///< by "section/replica"
};

/// Returns a digest of the ids of samples and of their order, 16 hexadecimal digits.
[[nodiscard]] std::string digest_of(const std::vector<SampleRef>& samples);

/// Returns {"step", "time", "samples", "tokens", "samples_digest", members of SchedulingRow, "lanes":
/// {"section/replica": {"busy_ms", "step_ms", "wait_ms": {reason: ms}}}, "sections": {section: {metric: value}}}.
/// Figures of sections read back bitwise the same.
[[nodiscard]] std::string line_of(const FinishedStep& step, std::chrono::system_clock::time_point now);

/// A start of a run, fresh or from a checkpoint, as its event has it.
struct RunStart {
  std::uint64_t first_step = 1;
  std::string resumed_from;  ///< a checkpoint; empty: none
  std::string run_id;
  std::string maestro_version;
  std::string build;  ///< build_id(); empty: unknown
  std::string instruction_set;
  std::int64_t processes = 1;               ///< of the start
  std::int64_t cpu_devices = 0;             ///< of a host
  std::vector<std::string> lanes;           ///< "section 'student' replica 0 on cpu:0 of process 0"
  std::map<std::string, std::string> data;  ///< data_fingerprint()
  std::vector<DataCursor::Segment> cursor;  ///< of the data: DataCursor::segments()
  std::string job_file;                     ///< the job with its overrides, TOML
};
/// Returns {"event": "began", "time", ...} with the names of the members.
[[nodiscard]] std::string line_of(const RunStart& start, std::chrono::system_clock::time_point now);
/// Returns the starts of a record, in their order. Errors name the file.
[[nodiscard]] Result<std::vector<RunStart>> recorded_starts(const std::filesystem::path& record);
/// Returns the start that trained a step: the last from a step up to `step`, as later starts do steps again; null:
/// none.
[[nodiscard]] const RunStart* start_of(const std::vector<RunStart>& starts, std::uint64_t step);
/// Returns that of a record. Errors name the file: not_found where there is none.
[[nodiscard]] Result<RunStart> start_of_step(const std::filesystem::path& record, std::uint64_t step);
/// Returns the samples_digest of a step. Errors name the file, and the steps that it has.
[[nodiscard]] Result<std::string> recorded_digest(const std::filesystem::path& record, std::uint64_t step);

/// Rows of the report.
struct ReportRows {
  RowSource steps;       ///< {"section", "step", metric: value, ...}
  RowSource scheduling;  ///< {"step", members of SchedulingRow}
};
/// Returns the rows of the steps behind `after`, up to `last`, of a record on the disk.
[[nodiscard]] ReportRows recorded_rows(const std::filesystem::path& record, std::uint64_t after, std::uint64_t last);
/// Returns the rows that are in memory. The record of the run outlives them.
[[nodiscard]] ReportRows rows_in_memory(const RunRecord& record);

/// Values by their names.
using EventFields = std::vector<std::pair<std::string, ReportValue>>;
/// Returns {"event", "time", ...}.
[[nodiscard]] std::string line_of(const std::string& event, const EventFields& fields,
                                  std::chrono::system_clock::time_point now);

/// Thread-safe. The writer and the console outlive it.
class RunJournal {
 public:
  /// `observers` receive the lines behind the files (OV-1).
  RunJournal(RunLog log, std::optional<TensorBoardWriter> board, SnapshotWriter& writer, Console& console,
             std::vector<NamedObserver> observers = {});
  void began(const RunStart& start);
  void step(const FinishedStep& step);
  void validated(const StepRow& row);
  void event(const std::string& event, const EventFields& fields);
  /// Waits until the lines so far are written, at most this long. Returns whether the record has all of them; nothing
  /// after a longer wait, and once the writer has stopped.
  std::optional<bool> flush(std::chrono::milliseconds patience);

 private:
  /// Of the writer's thread, which may outlive the journal.
  struct Shared {
    RunLog log;
    std::optional<TensorBoardWriter> board;
    Console& console;
    std::vector<NamedObserver> named;  // that have not been made
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
