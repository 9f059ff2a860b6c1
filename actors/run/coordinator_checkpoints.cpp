// SPDX-License-Identifier: Apache-2.0
// The coordinator's checkpoints, on disk and in memory: parts by the replicas, the commit on the writer's thread.
#include <algorithm>

#include "actors/run/coordinator.hpp"
#include "runtime/state/section_digest.hpp"

namespace maestro {

namespace {

void note_checkpoint(RunJournal& journal, StepId step, const std::filesystem::path& checkpoint) {
  EventFields fields{{"step", step.value()}, {"path", checkpoint.string()}};
  auto digests = section_digests(checkpoint);
  if (digests) {
    fields.emplace_back("digests", std::move(*digests));
  } else {
    fields.emplace_back("no_digests", digests.error().message);
  }
  journal.event("checkpoint", fields);
}

}  // namespace

void Coordinator::announce_checkpoint(const RunUnit& unit) {
  // Creating a folder is the only file work here; lanes must receive the boundary before work of the next step (CR-1).
  const Result<std::filesystem::path> staging = store_of(unit.kind).begin(unit.step, options_.origin.run.id);
  if (!staging) {
    send_to(this, supervisor(),
            Failure{"checkpoint of step " + std::to_string(unit.step.value()) + ": " + staging.error().message});
    return;
  }
  Open& open = open_[{unit.step.value(), unit.kind}];
  open.staging = staging->string();
  open.ahead = options_.trained_until;
  send_marks(
      {StepBoundary::Kind::snapshot, unit.step, Pass::train, open.staging, true, unit.kind == RunUnit::Kind::shadow});
  if (trained_sections() == 0) commit(open);
}

void Coordinator::snapshot_written(const SnapshotWritten& written) {
  const auto kind = written.shadow ? RunUnit::Kind::shadow : RunUnit::Kind::checkpoint;
  Open& open = open_.at({written.step.value(), kind});
  for (const StoredFile& file : written.files) open.files.push_back({file.path, file.bytes, file.checksum});
  if (++open.parts == trained_sections()) commit(open);
}

/// Returns what keeps a committed checkpoint for ever, on the writer's thread.
std::function<Status(const std::filesystem::path&)> Coordinator::archiving(StepId step) const {
  return [archive = *options_.archive, form = options_.archive_form, journal = options_.journal,
          step](const std::filesystem::path& checkpoint) -> Status {
    const Result<std::filesystem::path> kept = archive.keep(checkpoint, form);
    if (!kept) return Error{kept.error().code, "archive: " + kept.error().message};
    if (journal) journal->event("archived", {{"step", step.value()}, {"path", kept->string()}});
    return {};
  };
}

void Coordinator::commit(Open& open) {
  Manifest manifest = options_.origin;
  manifest.step = open.unit.step.value();
  manifest.seed = options_.seed;
  manifest.data_position =
      options_.cursor.position(manifest.step + 1, static_cast<std::uint64_t>(options_.global_batch));
  if (options_.cursor.segments().size() > 1) manifest.cursor = options_.cursor.segments();
  manifest.epoch = manifest.data_position / std::max<std::uint64_t>(options_.epoch_samples, 1);
  manifest.random_state = {options_.seed};  // streams are counter-based: (seed, name, step) is all the state there is
  manifest.files = open.files;
  for (const auto& [section, step] : open.ahead) {
    if (step > open.unit.step) manifest.ahead[options_.graph->node(section).section_name()] = step.value();
  }
  const caf::actor self = caf::actor_cast<caf::actor>(this);
  const caf::actor supervisor = RunActor::supervisor();
  const auto failed = [supervisor, step = open.unit.step](const std::string& problem) {
    send_from_outside(supervisor, Failure{"checkpoint of step " + std::to_string(step.value()) + ": " + problem});
  };
  const bool shadow = open.unit.kind == RunUnit::Kind::shadow;
  const bool kept = !shadow && options_.archive_every > 0 && manifest.step % options_.archive_every == 0;
  const auto keep = kept ? archiving(open.unit.step) : std::function<Status(const std::filesystem::path&)>();
  const auto commit = [store = &store_of(open.unit.kind), staging = open.staging, manifest, self, failed, shadow, keep,
                       unit = open.unit, journal = options_.journal]() -> SnapshotWriter::Report {
    Status stored = store->commit(staging, manifest);
    const Result<std::filesystem::path> latest = latest_checkpoint(store->root(), manifest.run.id);
    if (stored && journal && latest && !shadow) note_checkpoint(*journal, unit.step, *latest);
    if (stored && keep && latest) stored = keep(*latest);
    if (!stored) return [failed, problem = stored.error().message] { failed(problem); };
    return [self, done = CheckpointCommitted{unit.step, shadow, latest ? latest->string() : std::string()}] {
      send_from_outside(self, done);
    };
  };
  options_.snapshots->run(commit, failed);
}

void Coordinator::committed(const CheckpointCommitted& committed) {
  RunRecord& record = *options_.record;
  const RunUnit::Kind kind = committed.shadow ? RunUnit::Kind::shadow : RunUnit::Kind::checkpoint;
  const bool rescues = rescuing_ && rescuing_->made == Key(committed.step.value(), kind);
  if (rescues || !rescuing_ || !rescuing_->written) {  // otherwise that of the rescue is newer
    record.newest = committed.path;
    newest_ = committed.step;
    record.owed.reset();
    record.counts.mark(committed.step.value());
  }
  if (rescues) rescued();
  if (!committed.shadow) {
    record.checkpoint = committed.path;
    checkpoint_committed(committed);
  }
  close({committed.step.value(), kind});
}

}  // namespace maestro
