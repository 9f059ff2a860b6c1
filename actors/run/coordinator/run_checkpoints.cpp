// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_checkpoints.hpp"

#include <algorithm>

#include "runtime/checkpoint/section_digest.hpp"

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

RunCheckpoints::RunCheckpoints(const CoordinatorOptions& options)
    : options_(&options),
      trained_sections_(static_cast<std::size_t>(std::ranges::count_if(options.graph->nodes(), &GraphNode::trained))) {}

Result<StepBoundary> RunCheckpoints::begin(const RunUnit& unit, std::map<SectionId, StepId> ahead) {
  const Result<std::filesystem::path> staging = store_of(unit.kind).begin(unit.step, options_->origin.run.id);
  if (!staging) return staging.error();
  open_[key_of(unit)] = {staging->string(), std::move(ahead), {}, 0};
  const bool shadow = unit.kind == RunUnit::Kind::shadow;
  return StepBoundary{StepBoundary::Kind::snapshot, unit.step, Pass::train, staging->string(), 1, shadow};
}

void RunCheckpoints::add_part(const SnapshotWritten& written) {
  Parts& open = open_.at(key_of(checkpoint_unit(written.step, written.shadow)));
  for (const StoredFile& file : written.files) open.files.push_back({file.path, file.bytes, file.checksum});
  ++open.parts;
}

std::function<Status(const std::filesystem::path&)> RunCheckpoints::archiving(const RunUnit& unit) const {
  const std::uint64_t every = options_->archive_every;
  if (unit.kind == RunUnit::Kind::shadow || every == 0 || unit.step.value() % every != 0) return {};
  return [archive = *options_->archive, form = options_->archive_form, journal = options_->journal,
          step = unit.step](const std::filesystem::path& checkpoint) -> Status {
    const Result<std::filesystem::path> kept = archive.keep(checkpoint, form);
    if (!kept) return Error{kept.error().code, "archive: " + kept.error().message};
    if (journal) journal->event("archived", {{"step", step.value()}, {"path", kept->string()}});
    return {};
  };
}

Manifest RunCheckpoints::manifest_of(StepId step, const Parts& complete) const {
  Manifest manifest = options_->origin;
  manifest.step = step.value();
  manifest.seed = options_->seed;
  manifest.data_position =
      options_->cursor.position(manifest.step + 1, static_cast<std::uint64_t>(options_->global_batch));
  if (options_->cursor.segments().size() > 1) manifest.cursor = options_->cursor.segments();
  manifest.epoch = manifest.data_position / std::max<std::uint64_t>(options_->epoch_samples, 1);
  manifest.random_state = {options_->seed};  // streams are counter-based: their only state is (seed, name, step)
  manifest.files = complete.files;
  for (const auto& [section, until] : complete.ahead) {
    if (until > step) manifest.ahead[options_->graph->node(section).section_name()] = until.value();
  }
  return manifest;
}

void RunCheckpoints::commit(const RunUnit& unit, const Committed& done, const Failed& failed) {
  const Parts& complete = open_.at(key_of(unit));
  const auto work = [store = &store_of(unit.kind), staging = complete.staging,
                     manifest = manifest_of(unit.step, complete), done, failed, keep = archiving(unit), unit,
                     journal = options_->journal]() -> SnapshotWriter::Report {
    const bool shadow = unit.kind == RunUnit::Kind::shadow;
    Status stored = store->commit(staging, manifest);
    const Result<std::filesystem::path> latest = latest_checkpoint(store->root(), manifest.run.id);
    if (stored && journal && latest && !shadow) note_checkpoint(*journal, unit.step, *latest);
    if (stored && keep && latest) stored = keep(*latest);
    if (!stored) return [failed, problem = stored.error().message] { failed(problem); };
    const CheckpointCommitted committed{unit.step, shadow, latest ? latest->string() : std::string()};
    return [done, committed] { done(committed); };
  };
  options_->snapshots->run(work, failed);
}

void RunCheckpoints::committed(const CheckpointCommitted& committed, bool newest) {
  RunRecord& record = *options_->record;
  open_.erase(key_of(checkpoint_unit(committed.step, committed.shadow)));
  if (newest) {
    record.newest = committed.path;
    newest_ = committed.step;
    record.owed.reset();
    record.counts.mark(committed.step.value());
  }
  if (committed.shadow) return;
  record.checkpoint = committed.path;
  stored_ = committed.step;
}

}  // namespace maestro
