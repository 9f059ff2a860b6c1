// SPDX-License-Identifier: Apache-2.0
// The files that a process writes about its run: record, curves, trace, report, models. All but the trace are rank 0's.
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

  /// States the job and its place in the trace, for rehearsals of the run.
  void describe_trace();
  /// Opens the record of the run, and notes this start in it.
  void open_journal(SnapshotWriter& snapshots);
  /// Returns null if the run keeps no record.
  [[nodiscard]] const std::shared_ptr<RunJournal>& journal() const { return journal_; }
  /// Writes the lines of the record that are due, if there is one.
  void flush() const;
  /// Rehearses the last steps, for record and report.
  void rehearse();
  void write_trace_part();
  /// Waits for the last lines of the record, before their writer ends.
  void close_record();
  /// Runs while the control service and the live page still answer: with millions of rows it takes minutes.
  void write_report(const RunOutcome& ended);
  /// Writes the files of a complete run, and states all files in its result.
  void write_rest(RunResult& result, const RunOutcome& ended);

 private:
  /// Opens a file of curves, if they are wanted.
  [[nodiscard]] std::optional<TensorBoardWriter> open_board() const;
  [[nodiscard]] std::filesystem::path trace_part(std::int64_t of_rank) const;
  /// Merges the traces of the processes that were there at the end, and of those that had left by then.
  void write_trace(const RunOutcome& ended) const;
  /// Returns the rows of the record's files, or of memory if the files do not have all.
  [[nodiscard]] ReportRows report_rows() const;

  ProcessPart& part_;
  TraceRecorder& trace_;
  std::shared_ptr<RunJournal> journal_;            // shared with the coordinator
  bool record_whole_ = false;                      // at the end: the files have all lines
  std::optional<Result<RunRehearsal>> rehearsal_;  // at the end
  Status report_written_;                          // likewise
};

}  // namespace maestro
