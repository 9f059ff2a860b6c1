// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/spike_response.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

namespace {

/// Returns the first step whose samples are left out after a rollback; 0: the spike is too early.
std::uint64_t left_out_from(const GuardConfig& guard, std::uint64_t spike) {
  const auto before = static_cast<std::uint64_t>(guard.skip_steps / 2);
  return spike > before ? spike - before : 0;
}

}  // namespace

void SpikeResponse::answer_recorded(const Kept& kept) {
  if (!guard_ || !guard_->unanswered()) return;
  keep_base(guard_->unanswered()->found.began, kept);
  roll_back(*guard_->unanswered());
}

std::optional<SkippedStep> SpikeResponse::skip(StepId step, const NormTotals::Answers& norms) {
  if (!guard_) return std::nullopt;
  SectionNorms by_section;
  for (const auto& [section, total] : norms) {
    by_section[options_->graph->node(section).section_name()] = std::sqrt(total.sum_of_squares_of_section);
  }
  const std::optional<RefusedNorm> refused = guard_->refuse(by_section);
  if (!refused) return std::nullopt;
  options_->note_event("skipped", fields_of(*refused, step));
  const std::string text = text_of(*refused, step);
  options_->console->warning(text);
  if (!guard_->refuses_for_too_long()) return SkippedStep{};
  return SkippedStep{text + "; guard.patience = " + std::to_string(guard_->config().patience) +
                     " steps in a row were skipped: lower lr, lengthen warmup_steps, or continue from an earlier "
                     "checkpoint"};
}

void SpikeResponse::judge(const std::vector<StepRow>& rows, const Kept& kept) {
  if (!guard_) return;
  for (const GuardFinding& finding : guard_->judge(rows)) {
    options_->note_event("spike", fields_of(finding));
    if (finding.found.kind == SpikeFinding::Kind::ended) {
      options_->console->note(text_of(finding));
    } else {
      options_->console->warning(text_of(finding));
    }
    act_on(finding, kept);
  }
}

void SpikeResponse::act_on(const GuardFinding& finding, const Kept& kept) {
  using Kind = SpikeFinding::Kind;
  if (guard_->config().action != GuardAction::rollback || rollback_) return;
  if (finding.found.kind == Kind::ended) return drop_base(finding.found.began);
  if (finding.found.kind == Kind::huge_norm) return;
  if (finding.found.kind == Kind::began) ++spiking_[finding.found.began];
  keep_base(finding.found.began, kept);
  if (finding.lasts()) roll_back(finding);
}

void SpikeResponse::drop_base(std::uint64_t spike) {
  if (const auto found = spiking_.find(spike); found != spiking_.end() && --found->second > 0) return;
  options_->snapshots->run(
      [folder = options_->archive->root() / spike_folder_name(spike)]() -> SnapshotWriter::Report {
        std::error_code ignored;  // the folder holds only links of files
        std::filesystem::remove_all(folder, ignored);
        return [] {};
      },
      [](const std::string&) {});
}

void SpikeResponse::keep_base(std::uint64_t spike, const Kept& kept) {
  if (bases_.contains(spike)) return;
  bases_[spike] = std::nullopt;
  const auto work = [spike, before = left_out_from(guard_->config(), spike), archive = options_->archive->root(),
                     kept_in = CheckpointArchive(options_->archive->root() / spike_folder_name(spike)),
                     checkpoints = options_->snapshots->store().root(), run = options_->origin.run.id,
                     cursor = options_->cursor, kept]() -> SnapshotWriter::Report {
    const auto same_past = [&](const Manifest& manifest) {
      const Result<DataCursor> stored = DataCursor::of(manifest.cursor);
      return stored && stored->agrees(cursor, manifest.step);
    };
    const std::filesystem::path roots[] = {checkpoints, archive};
    SpikeBase base{spike, {}, {}};
    if (const auto found = checkpoint_before(roots, run, before, same_past)) {
      const Result<std::filesystem::path> copy = kept_in.keep(*found, ArchiveForm::full);
      if (copy) base.path = copy->string();
      if (!copy) base.problem = copy.error().message;
    }
    return [kept, base] { kept(base); };
  };
  options_->snapshots->run(work, [spike, kept](const std::string& problem) { kept(SpikeBase{spike, {}, problem}); });
}

bool SpikeResponse::base_kept(const SpikeBase& base) {
  bases_[base.spike] = base;
  const auto waiting = std::ranges::find(lasting_, base.spike, [](const auto& finding) { return finding.found.began; });
  if (waiting == lasting_.end()) return false;
  const GuardFinding finding = *waiting;
  lasting_.erase(waiting);
  roll_back(finding);
  return true;
}

void SpikeResponse::stay(const GuardFinding& finding, const std::string& reason) const {
  const std::uint64_t spike = finding.found.began;
  options_->console->warning("the run is not rolled back before the spike of step " + std::to_string(spike) + ": " +
                             reason);
  options_->note_event("not_rolled_back", {{"section", finding.section}, {"began", spike}, {"reason", reason}});
}

void SpikeResponse::roll_back(const GuardFinding& finding) {
  const std::uint64_t spike = finding.found.began;
  const std::optional<SpikeBase>& base = bases_[spike];
  if (!base) return lasting_.push_back(finding);  // until base_kept()
  if (rollback_ || schedule_->stopped()) return;
  const GuardConfig& config = guard_->config();
  if (static_cast<std::int64_t>(options_->rollbacks) >= config.max_rollbacks) {
    return stay(finding, "guard.max_rollbacks = " + std::to_string(config.max_rollbacks) + " is reached");
  }
  if (!base->problem.empty()) return stay(finding, base->problem);
  if (base->path.empty()) {
    return stay(finding, "no checkpoint is older than step " + std::to_string(left_out_from(config, spike)) +
                             "; write them more often, or set train.archive_every");
  }
  Rollback& way = rollback_.emplace();
  way.cause = text_of(finding);
  way.section = finding.section;
  way.spike = spike;
  way.base = base->path;
  way.before = way.cursor = options_->cursor;
  way.left_out_from = left_out_from(config, spike);
  way.cursor.skip(way.left_out_from, static_cast<std::uint64_t>(config.skip_steps),
                  static_cast<std::uint64_t>(options_->global_batch));
  schedule_->pause();
  (void)schedule_->request_checkpoint();  // keeps the state during the spike
}

}  // namespace maestro
