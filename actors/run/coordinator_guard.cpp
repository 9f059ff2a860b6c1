// SPDX-License-Identifier: Apache-2.0
// The coordinator's guard: spikes of losses, huge norms and values that are not finite, steps that are skipped, and the
// way back (CR-7).
#include <algorithm>
#include <cmath>

#include "actors/run/coordinator.hpp"

namespace maestro {

namespace {

/// Returns the first step whose samples are left out after a rollback; 0: a spike so early has none before it.
std::uint64_t left_out_from(const GuardConfig& guard, std::uint64_t spike) {
  const auto before = static_cast<std::uint64_t>(guard.skip_steps / 2);
  return spike > before ? spike - before : 0;
}

}  // namespace

bool Coordinator::skips(Open& open, const NormTotals::Answers& norms) {
  if (!options_.guard) return false;
  SectionNorms by_section;
  for (const auto& [section, total] : norms) {
    by_section[options_.graph->node(section).section_name()] = std::sqrt(total.sum_of_squares_of_section);
  }
  const std::optional<RefusedNorm> refused = options_.guard->refuse(by_section);
  if (!refused) return false;
  open.skipped = true;
  note_event("skipped", fields_of(*refused, open.unit.step));
  const std::string text = text_of(*refused, open.unit.step);
  options_.console->warning(text);
  if (options_.guard->refuses_for_too_long()) {
    send_to(this, supervisor(),
            Failure{text + ", and with it guard.patience = " + std::to_string(options_.guard->config().patience) +
                    " steps in a row; lower lr, lengthen warmup_steps, or go on from an earlier checkpoint"});
  }
  return true;
}

void Coordinator::guard(const std::vector<StepRow>& rows) {
  if (!options_.guard) return;
  for (const GuardFinding& finding : options_.guard->judge(rows)) {
    note_event("spike", fields_of(finding));
    if (finding.found.kind == SpikeFinding::Kind::ended) {
      options_.console->note(text_of(finding));
    } else {
      options_.console->warning(text_of(finding));
    }
    act_on(finding);
  }
}

void Coordinator::act_on(const GuardFinding& finding) {
  using Kind = SpikeFinding::Kind;
  if (options_.guard->config().action != GuardAction::rollback || rolling_back_) return;
  if (finding.found.kind == Kind::ended) return drop_base(finding.found.began);
  if (finding.found.kind == Kind::huge_norm) return;
  if (finding.found.kind == Kind::began) ++spiking_[finding.found.began];
  keep_base(finding.found.began);
  if (finding.lasts()) roll_back(finding);
}

/// Removes what keep_base() has kept, once the spike has ended in all sections.
void Coordinator::drop_base(std::uint64_t spike) {
  if (const auto found = spiking_.find(spike); found != spiking_.end() && --found->second > 0) return;
  options_.snapshots->run(
      [folder = options_.archive->root() / spike_folder_name(spike)]() -> SnapshotWriter::Report {
        std::error_code ignored;  // links of files
        std::filesystem::remove_all(folder, ignored);
        return [] {};
      },
      [](const std::string&) {});
}

/// Keeps the newest checkpoint before the spike, on the writer's thread: others may have replaced it when it is needed.
void Coordinator::keep_base(std::uint64_t spike) {
  if (bases_.contains(spike)) return;
  bases_[spike] = std::nullopt;
  const auto work = [spike, before = left_out_from(options_.guard->config(), spike), archive = options_.archive->root(),
                     kept_in = CheckpointArchive(options_.archive->root() / spike_folder_name(spike)),
                     checkpoints = options_.snapshots->store().root(), run = options_.origin.run.id,
                     cursor = options_.cursor, self = caf::actor_cast<caf::actor>(this)]() -> SnapshotWriter::Report {
    const auto same_past = [&](const Manifest& manifest) {
      const Result<DataCursor> stored = DataCursor::of(manifest.cursor);
      return stored && stored->agrees(cursor, manifest.step);
    };
    const std::filesystem::path roots[] = {checkpoints, archive};
    SpikeBase base{spike, {}, {}};
    if (const auto found = checkpoint_before(roots, run, before, same_past)) {
      const Result<std::filesystem::path> kept = kept_in.keep(*found, ArchiveForm::full);
      if (kept) base.path = kept->string();
      if (!kept) base.problem = kept.error().message;
    }
    return [self, base] { send_from_outside(self, base); };
  };
  const auto failed = [spike, self = caf::actor_cast<caf::actor>(this)](const std::string& problem) {
    send_from_outside(self, SpikeBase{spike, {}, problem});
  };
  options_.snapshots->run(work, failed);
}

void Coordinator::base_kept(const SpikeBase& base) {
  bases_[base.spike] = base;
  const auto waiting = std::ranges::find(lasting_, base.spike, [](const auto& finding) { return finding.found.began; });
  if (waiting == lasting_.end() || finished_) return;
  const GuardFinding finding = *waiting;
  lasting_.erase(waiting);
  roll_back(finding);
  if (began_) announce();
}

void Coordinator::roll_back(const GuardFinding& finding) {
  const std::uint64_t spike = finding.found.began;
  const std::optional<SpikeBase>& base = bases_[spike];
  if (!base) return lasting_.push_back(finding);  // until base_kept()
  if (rolling_back_ || finished_ || schedule_.stopped()) return;
  const GuardConfig& config = options_.guard->config();
  const auto stay = [&](const std::string& reason) {
    options_.console->warning("the run does not go back before the spike of step " + std::to_string(spike) + ": " +
                              reason);
    note_event("not_rolled_back", {{"section", finding.section}, {"began", spike}, {"reason", reason}});
  };
  const auto earlier = static_cast<std::int64_t>(options_.rollbacks);
  if (earlier >= config.max_rollbacks) {
    return stay("guard.max_rollbacks = " + std::to_string(config.max_rollbacks) + " are done");
  }
  if (!base->problem.empty()) return stay(base->problem);
  if (base->path.empty()) {
    return stay("no checkpoint is older than step " + std::to_string(left_out_from(config, spike)) +
                "; write them more often, or set train.archive_every");
  }
  Rollback& way = rolling_back_.emplace();
  way.cause = text_of(finding);
  way.section = finding.section;
  way.spike = spike;
  way.base = base->path;
  way.before = way.cursor = options_.cursor;
  way.left_out_from = left_out_from(config, spike);
  way.cursor.skip(way.left_out_from, static_cast<std::uint64_t>(config.skip_steps),
                  static_cast<std::uint64_t>(options_.global_batch));
  schedule_.pause();
  (void)schedule_.request_checkpoint();  // of the spike's state, to be kept
}

/// Leaves the rest to the starting thread, when all that was announced has ended.
void Coordinator::go_back() {
  if (options_.record->rollback) return;
  options_.record->rollback = rolling_back_;
  send_to(this, supervisor(), Failure{.message = rolling_back_->cause, .goes_back = true});
}

}  // namespace maestro
