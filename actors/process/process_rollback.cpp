// SPDX-License-Identifier: Apache-2.0
// Back to a checkpoint before a spike (PR-4): what is given up is kept beside the archive, and the run starts again as
// after the loss of a process.
#include <algorithm>

#include "actors/process/process_state.hpp"
#include "runtime/checkpoint/checkpoint_archive.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::vector<std::int64_t> range(std::uint64_t first, std::uint64_t end) {
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)};
}

}  // namespace

/// Returns the guard with the last steps of the record; without them where they cannot be read (JN-2).
std::optional<RunGuard> ProcessRun::State::make_guard() const {
  RunGuard guard(plan.guard);
  if (!journal) return plan.guard.action == GuardAction::skip ? std::optional(guard) : std::nullopt;
  const fs::path own = fs::path(plan.train.out) / record_folder;
  const fs::path& record_of_steps = plan.options.replayed.empty() ? own : plan.options.replayed;
  const Status learned = guard.learn_recorded(record_of_steps / steps_file, start.first_step - 1);
  if (learned) return guard;
  console.warning("the guard begins without earlier steps: " + learned.error().message);
  return RunGuard(plan.guard);
}

/// Keeps the lines of the steps that are given up, and the newest checkpoint of the spike. Returns its path; empty: the
/// spike has none.
Result<std::string> ProcessRun::State::keep_spike(const Rollback& way, std::uint64_t base_step) const {
  const fs::path out(plan.train.out);
  const fs::path folder = out / archive_folder / spike_folder_name(way.spike);
  std::string kept;
  if (!record->checkpoint.empty()) {
    const Result<Manifest> newest = load_manifest(record->checkpoint);
    if (!newest) return newest.error();
    if (newest->step >= way.spike) {
      const Result<fs::path> spiked = CheckpointArchive(folder).keep(record->checkpoint, ArchiveForm::full);
      if (!spiked) return spiked.error();
      kept = spiked->string();
    }
  }
  const auto count = static_cast<std::size_t>(record->last_step - base_step);
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

Status ProcessRun::State::branch(const Rollback& way) {
  constexpr milliseconds patience(10000);
  journal->flush(patience);
  const Result<Manifest> base = load_manifest(way.base);
  if (!base) return base.error();
  const auto batch = static_cast<std::uint64_t>(plan.train.global_batch);
  const Result<std::string> spiked = keep_spike(way, base->step);
  if (!spiked) return spiked.error();
  const auto change = [&](Manifest& manifest) {
    manifest.cursor = way.cursor.segments();
    manifest.data_position = way.cursor.position(manifest.step + 1, batch);
    manifest.epoch = manifest.data_position / std::max<std::uint64_t>(plan.corpus->samples(Split::train), 1);
  };
  const Result<fs::path> branched = branch_checkpoint(way.base, snapshots.store(), change);
  if (!branched) return branched.error();
  const std::uint64_t last = record->last_step;
  journal->event("rolled_back",
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
                  {"spike", (fs::path(plan.train.out) / archive_folder / spike_folder_name(way.spike)).string()},
                  {"spike_checkpoint", *spiked}});
  journal->flush(patience);
  record->newest = record->checkpoint = branched->string();
  record->owed.reset();
  return {};
}

/// Returns false, with an error in `ended`, where the run cannot go back.
bool ProcessRun::State::end_to_roll_back(RunOutcome& ended) {
  const Rollback way = *std::exchange(record->rollback, std::nullopt);
  const auto since = std::chrono::steady_clock::now();
  if (const Status done = branch(way); !done) {
    ended.error = way.cause + "; the run cannot go back: " + done.error().message;
    ended.recoverable = false;
    return false;
  }
  recovery.emplace();
  recovery->cause = way.cause;
  recovery->begun = since;
  recovery->rollback = true;
  console.finish();
  console.warning("going back to " + record->newest + ", without the samples of " +
                  std::to_string(plan.guard.skip_steps) + " steps from step " + std::to_string(way.left_out_from) +
                  " on (rollback " + std::to_string(rollbacks() + 1) + " of " +
                  std::to_string(plan.guard.max_rollbacks) + ")");
  take_down(ended);
  return true;
}

/// Returns the rollbacks of the run so far, those before a resume included as far as the data's cursor has them.
std::uint64_t ProcessRun::State::rollbacks() const {
  const auto here = static_cast<std::uint64_t>(std::ranges::count_if(record->recoveries, &Recovery::rollback));
  return std::max<std::uint64_t>(here, start.cursor.segments().size() - 1);
}

}  // namespace maestro
