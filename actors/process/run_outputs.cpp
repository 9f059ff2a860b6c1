// SPDX-License-Identifier: Apache-2.0
#include "actors/process/run_outputs.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "actors/job/lane_text.hpp"
#include "actors/job/memory_table.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/process/job_resolver.hpp"
#include "actors/process/model_folders.hpp"
#include "actors/run/record/step_figures.hpp"
#include "runtime/core/build_id.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/record/run_folder.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Waits until a trace file exists. Processes of other launchers or hosts may still write their traces, or write them
/// to a folder that is not visible on this host.
bool appears(const fs::path& file, Clock::time_point deadline) {
  while (!fs::exists(file)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));  // no event reports a new file
  }
  return true;
}

}  // namespace

void RunOutputs::describe_trace() {
  trace_.describe("job", part_.plan.effective_job);
  trace_.describe("processes", std::to_string(part_.plan.options.processes));
  trace_.describe("cpu_devices", std::to_string(cpu_devices_of(part_.plan.options)));
  trace_.describe("cores", std::to_string(usable_cores().size()));
  std::string by_process;
  for (const std::uint32_t host : part_.place.hosts)
    by_process += (by_process.empty() ? "" : ",") + std::to_string(host);
  trace_.describe("hosts", std::move(by_process));
}

void RunOutputs::open_journal(SnapshotWriter& snapshots) {
  if (has_emulated(part_.plan)) return;
  RunLog log = RunLog::open(part_.record_path(), part_.start.first_step - 1).value_or_throw();
  const std::uint64_t last = log.last_step();
  journal_ = std::make_shared<RunJournal>(std::move(log), open_board(), snapshots, part_.console, part_.plan.observers);
  if (last + 1 < part_.start.first_step) {
    part_.console.note("record: lines of steps " + std::to_string(last + 1) + " to " +
                       std::to_string(part_.start.first_step - 1) + " are missing in " + part_.record_path().string());
  }
  const RunStart began{part_.start.first_step,
                       part_.start.checkpoint.string(),
                       part_.claim.origin.run.id,
                       MAESTRO_VERSION,
                       build_id(),
                       std::string(cpu::name_of(cpu::best_isa())),
                       part_.plan.options.processes,
                       cpu_devices_of(part_.plan.options),
                       lanes_of(part_.plan),
                       part_.claim.origin.data,
                       part_.start.cursor.segments(),
                       part_.plan.effective_job};
  journal_->began(began);
  part_.record->keep_recent_rows();
}

std::optional<TensorBoardWriter> RunOutputs::open_board() const {
  if (part_.plan.options.tensorboard.empty()) return std::nullopt;
  const bool chosen = part_.plan.options.tensorboard != "auto";
  const fs::path folder =
      chosen ? fs::path(part_.plan.options.tensorboard) : fs::path(part_.plan.train.out) / "tensorboard";
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  TensorBoardWriter board = TensorBoardWriter::create(folder, now).value_or_throw();
  if (part_.start.first_step > 1) board.add_start(static_cast<std::int64_t>(part_.start.first_step), now).or_throw();
  return board;
}

void RunOutputs::flush() const {
  constexpr std::chrono::milliseconds patience(500);
  if (journal_) journal_->flush(patience);
}

void RunOutputs::rehearse() {
  if (!part_.is_root() || (!journal_ && part_.plan.options.report.empty())) return;
  rehearsal_ = rehearse_run(part_.plan, part_.memory.figures->measured().kept());
  if (!journal_ || !*rehearsal_) return;
  EventFields fields = fields_of(*rehearsal_);
  fields.emplace(fields.begin(), "step", part_.record->last_step);
  journal_->event("rehearsed", fields);
}

void RunOutputs::write_trace_part() {
  if (!part_.plan.options.trace.empty()) trace_.write_part(trace_part(part_.place.rank)).or_throw();
}

fs::path RunOutputs::trace_part(std::int64_t of_rank) const {
  const fs::path& trace_file = part_.plan.options.trace;
  const bool through = is_written_through(trace_file);  // a device or a pipe, next to which a file cannot be made
  const auto base = through ? fs::path(part_.plan.train.out) / "trace" : trace_file;
  return base.string() + ".part" + std::to_string(of_rank);
}

void RunOutputs::close_record() {
  constexpr std::chrono::seconds patience(30);  // a disk may be slow
  if (!journal_) return;
  const std::optional<bool> whole = journal_->flush(patience);
  record_whole_ = whole.value_or(false);
  if (!whole)
    part_.console.warning("the last lines of the record in " + part_.record_path().string() + " are not written");
}

ReportRows RunOutputs::report_rows() const {
  std::error_code gone;  // the folder may have been removed during the run
  const bool readable = record_whole_ && fs::exists(part_.record_path() / steps_file, gone);
  if (readable) return recorded_rows(part_.record_path(), part_.record->resumed_from, part_.record->last_step);
  if (part_.record->steps.first() > 0) {
    part_.console.warning("report: it has only the last " + std::to_string(part_.record->scheduling.kept().size()) +
                          " steps, as the record lacks lines or is gone");
  }
  return rows_in_memory(*part_.record);
}

void RunOutputs::write_report(const RunOutcome& ended) {
  constexpr std::uint64_t many_steps = 100'000;
  if (!part_.is_root() || part_.plan.options.report.empty()) return;
  part_.console.finish();
  if (part_.record->last_step > many_steps) {
    part_.console.note("writing the report of " + std::to_string(part_.record->last_step) + " steps to " +
                       part_.plan.options.report.string());
  }
  Report report = make_report(part_.plan, *part_.record, total_of(ended.processes), report_rows());
  if (rehearsal_) add_rehearsal(*rehearsal_, report);
  report_written_ = report.write(part_.plan.options.report);
}

void RunOutputs::write_trace(const RunOutcome& ended) const {
  constexpr std::chrono::seconds patience(5);
  const auto deadline = Clock::now() + patience;
  std::vector<fs::path> parts;
  for (std::int64_t at = 0; at < std::ssize(part_.hosts); ++at) {
    const ProcessId of_process(static_cast<std::uint32_t>(at));
    const std::string trace_of = "the trace of process " + std::to_string(at);
    const fs::path part = trace_part(at);
    const bool there =
        std::ranges::find(ended.processes, of_process, &ProcessSummary::process) != ended.processes.end();
    if (there ? appears(part, deadline) : fs::exists(part)) {
      parts.push_back(part);
    } else if (there) {
      part_.console.note(trace_of + " remains on its host, in " + part.string());
    } else if (at < part_.plan.options.processes) {
      part_.console.note(trace_of + ", which was lost, is missing");
    }
  }
  merge_traces(parts, part_.plan.options.trace).or_throw();
  for (const fs::path& part : parts) fs::remove(part);
}

void RunOutputs::write_rest(RunResult& result, const RunOutcome& ended) {
  constexpr double bytes_per_mb = 1e6;
  result.steps = static_cast<std::uint64_t>(all_steps(part_.plan));
  result.wall_seconds = std::chrono::duration<double>(Clock::now() - part_.memory.begun).count();
  result.losses = part_.record->losses;
  result.made = part_.record->made.metrics;
  for (const Recovery& recovered : part_.record->recoveries) result.recoveries.push_back(line_of(recovered));
  result.left_out = part_.record->left_out;
  if (rehearsal_ && *rehearsal_) result.rehearsal = **rehearsal_;
  if (journal_) result.record = (fs::path(part_.plan.train.out) / record_folder).string();
  result.estimated_mb = host_bytes(estimate_memory(part_.plan)) / bytes_per_mb;
  if (!part_.plan.options.report.empty()) {
    report_written_.or_throw();
    result.report = part_.plan.options.report.string();
  }
  if (!part_.plan.options.trace.empty()) {
    write_trace(ended);
    result.trace = part_.plan.options.trace.string();
  }
  if (part_.record->checkpoint.empty()) return;
  result.resume = part_.plan.train.out;
  for (const GraphNode& node : part_.plan.graph.nodes()) {
    if (!node.trained()) continue;
    result.weights[node.section_name()] = (fs::path(part_.record->checkpoint) / node.section_name()).string();
  }
  if (part_.record->interrupted) return;
  // Recorded again, as the folder may have been removed during the run, and models without a record would seem to be
  // from another run.
  RunFolder(part_.plan.train.out).record(part_.claim.origin.run).or_throw();
  const auto models = export_models(part_.plan, part_.record->checkpoint);
  if (models) {
    result.models = *models;
    return;
  }
  part_.console.error("the run is complete, with its weights in " + part_.record->checkpoint + ", but " +
                      models.error().message);
  result.status = 1;
}

}  // namespace maestro
