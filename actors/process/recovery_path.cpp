// SPDX-License-Identifier: Apache-2.0
#include "actors/process/recovery_path.hpp"

#include <algorithm>
#include <filesystem>

#include "actors/job/planning_options.hpp"
#include "actors/process/emergency_exit.hpp"
#include "actors/run/coordinator/coordinator.hpp"
#include "runtime/checkpoint/checkpoint_archive.hpp"
#include "runtime/record/run_log.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds recovery_patience(700);  // time for the other processes to end by themselves
constexpr milliseconds survivor_limit(2000);    // time for the end of a process that rank 0 can start again

std::vector<std::int64_t> range(std::uint64_t first, std::uint64_t end) {
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)};
}

}  // namespace

bool RecoveryPath::may_recover() const {
  const bool starts_all = part_.plan.options.launch_info.starts_others() || !part_.several();
  return part_.is_root() && starts_all && !parts_.stop.stopping() &&
         part_.plan.train.recover == RecoverChoice::restart &&
         static_cast<std::int64_t>(part_.losses) < part_.plan.train.max_recoveries;
}

bool RecoveryPath::may_survive() const {
  const bool on_gpu = std::ranges::any_of(part_.own_places(), [](const ReplicaPlacement& at) {
    return std::ranges::any_of(at.devices, &DeviceId::is_cuda);
  });
  return !part_.is_root() && !part_.joins_later() && !on_gpu;  // a GPU context may keep the error of a peer's loss
}

void RecoveryPath::continue_record() {
  Recovery& last = part_.record->recoveries.back();
  last.after_step = part_.start.first_step - 1;
  last.repeated = std::max(part_.record->last_step, last.after_step) - last.after_step;
  part_.record->go_back(last.after_step, part_.start.stored.ahead,
                        part_.plan.graph.node(watched_section(part_.plan.graph)).section_name());
}

void RecoveryPath::end_failed_start(const std::string& problem) {
  begin(problem, std::chrono::steady_clock::now());
  part_.record->recoveries.push_back(*recovery_);
}

void RecoveryPath::begin(const std::string& cause, std::chrono::steady_clock::time_point since) {
  recovery_.emplace();
  recovery_->cause = cause;
  recovery_->begun = since;
  part_.console.finish();
  const std::string from = part_.record->newest.empty()
                               ? "at the point where the run began, as no checkpoint exists yet"
                               : "from " + part_.record->newest;
  part_.console.warning(cause + "; starting again " + from + " (recovery " + std::to_string(++part_.losses) + " of " +
                        std::to_string(part_.plan.train.max_recoveries) + ")");
}

void RecoveryPath::end_to_recover(const RunOutcome& ended) {
  begin(ended.error, ended.lost_at);
  take_down(ended);
}

void RecoveryPath::take_down(const RunOutcome& ended) {
  part_.bound("the end of the processes before the recovery", departure_limit);
  parts_.placements.close();
  parts_.outputs.flush();
  for (const ProcessIdentity& lost : ended.lost) ProcessHandle(lost).kill();
  part_.launcher->end_others(ended.survivors, recovery_patience);
  parts_.take_down();
  part_.memory.frozen.keep(part_.plan.graph, parts_.built.replicas());
  part_.record->recoveries.push_back(*recovery_);  // the coordinator, which records moves in place, has ended
  if (part_.job_start) part_.job_start->tidy_start();
  remove_sockets(ended.lost, part_.launcher->ended_pids());
  (void)sweep_shared_memory();  // segments of ended processes
  part_.bound({}, milliseconds(0));
}

void RecoveryPath::end_to_start_again() {
  parts_.stop.replaceable();
  part_.bound("the end of the process before the recovery", survivor_limit);
  parts_.take_down();
  part_.memory.frozen.keep(part_.plan.graph, parts_.built.replicas());
  part_.memory.again = true;
  remove_sockets({}, {});
  part_.bound({}, milliseconds(0));
}

bool RecoveryPath::end_to_roll_back(RunOutcome& ended) {
  const Rollback way = *std::exchange(part_.record->rollback, std::nullopt);
  const auto since = std::chrono::steady_clock::now();
  if (const Status done = branch(way); !done) {
    ended.error = way.cause + "; the run cannot go back: " + done.error().message;
    ended.recoverable = false;
    return false;
  }
  recovery_.emplace();
  recovery_->cause = way.cause;
  recovery_->begun = since;
  recovery_->rollback = true;
  part_.console.finish();
  part_.console.warning("going back to " + part_.record->newest + ", without the samples of " +
                        std::to_string(part_.plan.guard.skip_steps) + " steps from step " +
                        std::to_string(way.left_out_from) + " on (rollback " + std::to_string(rollbacks() + 1) +
                        " of " + std::to_string(part_.plan.guard.max_rollbacks) + ")");
  take_down(ended);
  return true;
}

Status RecoveryPath::branch(const Rollback& way) {
  constexpr milliseconds patience(10000);
  parts_.outputs.journal()->flush(patience);
  const Result<Manifest> base = load_manifest(way.base);
  if (!base) return base.error();
  if (base->step < static_cast<std::uint64_t>(part_.plan.stage.begin)) {
    return Error{ErrorCode::not_found, way.base + " was made before this stage"};
  }
  const auto batch = static_cast<std::uint64_t>(part_.plan.train.global_batch);
  const Result<std::string> spiked = keep_spike(way, base->step);
  if (!spiked) return spiked.error();
  const auto change = [&](Manifest& manifest) {
    manifest.cursor = way.cursor.segments();
    manifest.data_position = way.cursor.position(manifest.step + 1, batch);
    manifest.epoch = manifest.data_position / std::max<std::uint64_t>(epoch_positions(part_.plan), 1);
  };
  const Result<fs::path> branched = branch_checkpoint(way.base, parts_.built.snapshots().store(), change);
  if (!branched) return branched.error();
  const std::uint64_t last = part_.record->last_step;
  parts_.outputs.journal()->event(
      "rolled_back",
      {{"section", way.section},
       {"began", way.spike},
       {"cause", way.cause},
       {"after_step", base->step},
       {"path", branched->string()},
       {"last_step", last},
       {"positions_rolled_back",
        range(way.before.position(base->step + 1, batch), way.before.position(last, batch) + batch)},
       {"left_out_from_step", way.left_out_from},
       {"positions_left_out",
        range(way.before.position(way.left_out_from, batch), way.cursor.position(way.left_out_from, batch))},
       {"spike", (fs::path(part_.plan.train.out) / archive_folder / spike_folder_name(way.spike)).string()},
       {"spike_checkpoint", *spiked}});
  parts_.outputs.journal()->flush(patience);
  part_.record->newest = part_.record->checkpoint = branched->string();
  part_.record->owed.reset();
  return {};
}

Result<std::string> RecoveryPath::keep_spike(const Rollback& way, std::uint64_t base_step) const {
  const fs::path out(part_.plan.train.out);
  const fs::path folder = out / archive_folder / spike_folder_name(way.spike);
  std::string kept;
  if (!part_.record->checkpoint.empty()) {
    const Result<Manifest> newest = load_manifest(part_.record->checkpoint);
    if (!newest) return newest.error();
    if (newest->step >= way.spike) {
      const Result<fs::path> spiked = CheckpointArchive(folder).keep(part_.record->checkpoint, ArchiveForm::full);
      if (!spiked) return spiked.error();
      kept = spiked->string();
    }
  }
  const auto count = static_cast<std::size_t>(part_.record->last_step - base_step);
  const Result<std::vector<std::string>> lines = read_record_end(out / record_folder / steps_file, count);
  if (!lines) return lines.error();
  std::string text;
  for (const std::string& line : *lines) text += line + "\n";
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return system_error("cannot create folder", folder, failure.value());
  const Result<WrittenFile> written = write_file(folder / steps_file, text);
  if (!written) return written.error();
  return kept;
}

std::optional<RunGuard> RecoveryPath::make_guard() const {
  std::map<std::string, double> clip_norms;
  for (const auto& section : part_.plan.sections) {
    clip_norms[section.config.name] = section.config.optimizer.clip_norm;
  }
  RunGuard guard(part_.plan.guard, clip_norms);
  if (!parts_.outputs.journal())
    return part_.plan.guard.action == GuardAction::skip ? std::optional(guard) : std::nullopt;
  const fs::path own = fs::path(part_.plan.train.out) / record_folder;
  const fs::path& record_of_steps = part_.plan.options.replayed.empty() ? own : part_.plan.options.replayed;
  const Status learned = guard.learn_recorded(record_of_steps / steps_file, part_.start.first_step - 1);
  if (learned) return guard;
  part_.console.warning("the guard begins without earlier steps: " + learned.error().message);
  return RunGuard(part_.plan.guard, std::move(clip_norms));
}

std::uint64_t RecoveryPath::rollbacks() const {
  const auto here = static_cast<std::uint64_t>(std::ranges::count_if(part_.record->recoveries, &Recovery::rollback));
  return std::max<std::uint64_t>(here, part_.start.cursor.segments().size() - 1);
}

}  // namespace maestro
