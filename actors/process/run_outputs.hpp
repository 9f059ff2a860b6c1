// SPDX-License-Identifier: Apache-2.0
// The files that a process writes about its run: record, curves, trace, report, models. Only rank 0 writes files other
// than the trace.
#pragma once

#include <memory>
#include <optional>

#include "actors/process/process_part.hpp"
#include "actors/run/coordinator/run_rehearsal.hpp"
#include "actors/run/record/run_journal.hpp"
#include "actors/run/record/run_report.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {

/// Used by the main thread, except rehearse(), which the coordinator calls before the run ends.
class RunOutputs {
 public:
  RunOutputs(ProcessPart& part, TraceRecorder& trace) : part_(part), trace_(trace) {}

  /// Writes the job and its hosts into the trace, for rehearsals of the run.
  void describe_trace();
  /// Opens the run's record and notes this start in it.
  void open_journal(SnapshotWriter& snapshots);
  /// Returns null if the run keeps no record.
  [[nodiscard]] const std::shared_ptr<RunJournal>& journal() const { return journal_; }
  /// Writes the record's pending lines, if the run keeps one.
  void flush() const;
  /// Rehearses the last steps, for the record and the report.
  void rehearse();
  void write_trace_part();
  /// Waits for the record's last lines, before their writer ends.
  void close_record();
  /// Writes the report. With millions of rows this takes minutes, during which control service and live page answer.
  void write_report(const RunOutcome& ended);
  /// Writes the files of a complete run, and sets all paths in its result.
  void write_rest(RunResult& result, const RunOutcome& ended);

 private:
  /// Opens a file of curves, if the job wants them.
  [[nodiscard]] std::optional<TensorBoardWriter> open_board() const;
  [[nodiscard]] std::filesystem::path trace_part(std::int64_t of_rank) const;
  /// Merges the traces of all processes, including processes that have left the run.
  void write_trace(const RunOutcome& ended) const;
  /// Returns the rows from the record's files, or from memory if the files are incomplete.
  [[nodiscard]] ReportRows report_rows() const;

  ProcessPart& part_;
  TraceRecorder& trace_;
  std::shared_ptr<RunJournal> journal_;            // shared with the coordinator
  bool record_whole_ = false;                      // at the end: the record's files have all lines
  std::optional<Result<RunRehearsal>> rehearsal_;  // set at the end
  Status report_written_;                          // set at the end
};

}  // namespace maestro
