// SPDX-License-Identifier: Apache-2.0
// What a section replica does at a mark: at the end of a step reduce, clip and step; at a snapshot gather and write.
#include <cmath>

#include "actors/replica/section_replica.hpp"

namespace maestro {

void SectionReplica::start_mark(const StepBoundary& mark) {
  step_ = mark.step;
  if (mark.kind == StepBoundary::Kind::snapshot) return start_snapshot();
  if (!trained() || !mark.active || mark.pass == Pass::evaluate) return mark_passed();
  if (ranks_.size() == 1) return start_reduction();
  stage_ = Stage::adding;
  submit_all("add ranks", [](ReplicaRank& rank) {
    return [runner = rank.runner()] {
      runner->add_over_ranks();
      return WorkDone{};
    };
  });
}

void SectionReplica::start_reduction() {
  stage_ = Stage::reducing;
  for (const auto& rank : ranks_) rank->reductions().begin();
  continue_exchange();
}

bool SectionReplica::exchanging() const {
  return stage_ == Stage::reducing || stage_ == Stage::distributing || stage_ == Stage::join_check;
}

void SectionReplica::continue_exchange() {
  if (!exchanging()) return;
  bool reduced = true;
  for (const auto& rank : ranks_) {
    reduced = rank->reductions().done() && reduced;  // first: it may begin another reduction that has work
    if (auto work = rank->reductions().work()) {
      rank->submit(rank->trace().work(work->first, TraceCategory::step, step_), std::move(work->second), {},
                   caf::actor_cast<caf::actor>(this));
    }
  }
  if (reduced) exchanged();
}

void SectionReplica::exchanged() {
  if (stage_ == Stage::join_check) {
    if (!snapshot_) return moments_gathered();
    stage_ = Stage::copying;
    return submit_first("snapshot", snapshot_->load_gathered_moments(gathering_));
  }
  if (stage_ == Stage::distributing) {
    stage_ = Stage::taking;
    return submit_all("take", [](ReplicaRank& rank) {
      return [runner = rank.runner()] {
        runner->section().parameters().load_gathered_values(*runner->context().ops);
        return WorkDone{};
      };
    });
  }
  stage_ = Stage::norm;
  submit_all("norm", [](ReplicaRank& rank) {
    return [runner = rank.runner()] {
      return std::function<WorkDone()>([sum = runner->gradient_sum_of_squares()] {
        WorkDone result;
        result.sum_of_squares = sum.get();
        return result;
      });
    };
  });
}

void SectionReplica::norm_known() {
  if (!spec_.global_clip && node().stages == 1 && !optimizer_sharded()) return start_step(sum_of_squares_);
  stage_ = Stage::clipping;
  if (optimizer_sharded() || spec_.replica == ReplicaIndex(0)) {
    const std::int64_t reporters = optimizer_sharded() ? node().replicas : 1;
    tell(this, coordinator_,
         NormReport{spec_.section, spec_.replica, static_cast<std::uint32_t>(reporters), step_, sum_of_squares_});
  }
  clip();
}

void SectionReplica::clip() {
  // Where only replica 0 reports its section, the answer may come while this one still works out its own norm.
  if (stage_ != Stage::clipping || !norm_total_ || norm_total_->step != step_) return;
  sum_of_squares_ = norm_total_->sum_of_squares_of_section;
  start_step(norm_total_->sum_of_squares);
}

void SectionReplica::start_step(double sum_of_squares) {
  stage_ = Stage::stepping;
  submit_all("step", [this, norm = std::sqrt(sum_of_squares)](ReplicaRank& rank) {
    return [runner = rank.runner(), step = step_, norm] {
      const Result<OptimizerStep> stepped = runner->step(step, norm);
      if (!stepped) throw std::runtime_error(stepped.error().message);
      WorkDone result;
      result.lr = stepped->lr;
      return result;
    };
  });
}

void SectionReplica::stepped() {
  lr_ = gathered_.lr;
  if (!optimizer_sharded()) return step_passed();
  stage_ = Stage::distributing;
  for (const auto& rank : ranks_) rank->reductions().begin_distribution();
  continue_exchange();
}

void SectionReplica::step_passed() {
  const double own = std::sqrt(sum_of_squares_);
  tell(this, coordinator_, StepDone{spec_.section, spec_.replica, step_, Pass::train, own, lr_});
  finish_mark();
}

void SectionReplica::start_snapshot() {
  const bool writes = spec_.replica == ReplicaIndex(0);
  if (!trained() || (!writes && !optimizer_sharded())) return mark_passed();
  if (writes) snapshot_.emplace(spec_, work_.mark, caf::actor_cast<caf::actor>(this), coordinator_);
  if (optimizer_sharded()) return start_gather(ParameterBuffer::first_moments);
  start_writing();
}

void SectionReplica::start_gather(ParameterBuffer which) {
  stage_ = Stage::join_check;
  gathering_ = which;
  for (const auto& rank : ranks_) rank->reductions().begin_gather(which);
  continue_exchange();
}

void SectionReplica::moments_gathered() {
  if (gathering_ == ParameterBuffer::first_moments) return start_gather(ParameterBuffer::second_moments);
  if (snapshot_) return start_writing();
  start_clearing();
}

void SectionReplica::start_writing() {
  stage_ = Stage::writing;
  submit_first("snapshot", snapshot_->write());
  snapshot_.reset();
}

void SectionReplica::start_clearing() {
  stage_ = Stage::clearing;
  submit_all("clear", [](ReplicaRank& rank) {
    return [runner = rank.runner()] {
      runner->section().parameters().clear_gradients(*runner->context().ops);
      return WorkDone{};
    };
  });
}

void SectionReplica::mark_passed() {
  if (work_.mark.kind == StepBoundary::Kind::end_step) {
    tell(this, coordinator_, StepDone{spec_.section, spec_.replica, step_, work_.mark.pass, 0, 0});
  }
  finish_mark();
}

void SectionReplica::finish_mark() {
  (void)lane_.finished();
  stage_ = Stage::idle;
  pump();
}

}  // namespace maestro
