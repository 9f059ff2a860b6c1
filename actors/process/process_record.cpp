// SPDX-License-Identifier: Apache-2.0
// The record that rank 0 keeps of the run, and the report's rows out of it.
#include <chrono>
#include <filesystem>

#include "actors/job/planning_options.hpp"
#include "actors/process/job_resolver.hpp"
#include "actors/process/process_state.hpp"
#include "runtime/core/build_id.hpp"
#include "runtime/core/usable_cores.hpp"

namespace maestro {

namespace {
namespace fs = std::filesystem;
}  // namespace

/// Opens a file of curves, where they are wanted.
std::optional<TensorBoardWriter> ProcessRun::State::open_board() const {
  if (plan.options.tensorboard.empty()) return std::nullopt;
  const bool chosen = plan.options.tensorboard != "auto";
  const fs::path folder = chosen ? fs::path(plan.options.tensorboard) : fs::path(plan.train.out) / "tensorboard";
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  TensorBoardWriter board = TensorBoardWriter::create(folder, now).value_or_throw();
  if (start.first_step > 1) board.add_start(static_cast<std::int64_t>(start.first_step), now).or_throw();
  return board;
}

/// Opens the record of the run, and notes this start in it.
void ProcessRun::State::open_journal() {
  if (has_emulated(plan)) return;
  RunLog log = RunLog::open(record_path(), start.first_step - 1).value_or_throw();
  const std::uint64_t last = log.last_step();
  journal = std::make_shared<RunJournal>(std::move(log), open_board(), snapshots, console, plan.observers);
  if (last + 1 < start.first_step) {
    console.note("record: there are no lines of steps " + std::to_string(last + 1) + " to " +
                 std::to_string(start.first_step - 1) + " in " + record_path().string());
  }
  const RunStart began{start.first_step,
                       start.checkpoint.string(),
                       claim.origin.run.id,
                       MAESTRO_VERSION,
                       build_id(),
                       std::string(cpu::name_of(cpu::best_isa())),
                       plan.options.processes,
                       cpu_devices_of(plan.options),
                       lanes_of(plan),
                       claim.origin.data,
                       start.cursor.segments(),
                       plan.effective_job};
  journal->began(began);
  record->keep_recent_rows();
}

/// States the job and its place, for rehearsals of the run.
void ProcessRun::State::describe_trace() {
  trace.describe("job", plan.effective_job);
  trace.describe("processes", std::to_string(plan.options.processes));
  trace.describe("cpu_devices", std::to_string(cpu_devices_of(plan.options)));
  trace.describe("cores", std::to_string(usable_cores().size()));
  std::string by_process;
  for (const std::uint32_t host : place.hosts) by_process += (by_process.empty() ? "" : ",") + std::to_string(host);
  trace.describe("hosts", std::move(by_process));
}

void ProcessRun::State::rehearse() {
  if (!is_root() || (!journal && plan.options.report.empty())) return;
  rehearsal = rehearse_run(plan, memory.figures->measured().kept());
  if (!journal || !*rehearsal) return;
  EventFields fields = fields_of(*rehearsal);
  fields.emplace(fields.begin(), "step", record->last_step);
  journal->event("rehearsed", fields);
}

void ProcessRun::State::close_record() {
  constexpr std::chrono::seconds patience(30);  // a disk may be slow
  if (!journal) return;
  const std::optional<bool> whole = journal->flush(patience);
  record_whole = whole.value_or(false);
  if (!whole) console.warning("the last lines of the record in " + record_path().string() + " are not written");
}

ReportRows ProcessRun::State::report_rows() const {
  std::error_code gone;  // the folder may have been removed in mid-run
  const bool readable = record_whole && fs::exists(record_path() / steps_file, gone);
  if (readable) return recorded_rows(record_path(), record->resumed_from, record->last_step);
  if (record->steps.first() > 0) {
    console.warning("report: it has the last " + std::to_string(record->scheduling.kept().size()) +
                    " steps alone, as the record lacks lines or is gone");
  }
  return rows_in_memory(*record);
}

}  // namespace maestro
