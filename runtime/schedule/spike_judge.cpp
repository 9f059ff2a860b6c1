// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/spike_judge.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

std::vector<SpikeFinding> SpikeJudge::judge(std::uint64_t step, std::optional<double> loss,
                                            std::optional<double> norm) {
  std::vector<SpikeFinding> findings;
  const bool bad_loss = loss && !std::isfinite(*loss);
  if (bad_loss || (norm && !std::isfinite(*norm))) {
    broken(step, bad_loss ? *loss : *norm, findings);
    return findings;
  }
  broken_ = false;
  if (loss) judge_loss(step, *loss, findings);
  if (norm) judge_norm(step, *norm, findings);
  return findings;
}

void SpikeJudge::judge_loss(std::uint64_t step, double loss, std::vector<SpikeFinding>& findings) {
  using Kind = SpikeFinding::Kind;
  if (!spike_ && losses_.judges()) {
    const double usual = losses_.median();
    const double threshold = std::max(rules_.rise, rules_.z * losses_.deviation(usual));
    if (loss > usual + threshold) {
      spike_ = Spike{step, usual, threshold, loss};
      findings.push_back({Kind::began, step, step, loss, usual, loss});
      return;
    }
  }
  if (!spike_) return losses_.add(loss);
  spike_->highest = std::max(spike_->highest, loss);
  const SpikeFinding found{Kind::ended, spike_->began, step, loss, spike_->usual, spike_->highest};
  if (loss <= spike_->usual + spike_->threshold / 2) {
    findings.push_back(found);
    spike_.reset();
    losses_.add(loss);
  } else if (step - spike_->began >= rules_.patience) {
    findings.push_back(found);
    findings.back().kind = Kind::lasts;
    begin_anew();
  }
}

void SpikeJudge::judge_norm(std::uint64_t step, double norm, std::vector<SpikeFinding>& findings) {
  const double usual = norms_.judges() ? norms_.median() : norm;
  const bool huge = norm > rules_.norm * usual && norm > rules_.least_huge;
  if (huge && !huge_norm_) findings.push_back({SpikeFinding::Kind::huge_norm, step, step, norm, usual, norm});
  huge_norm_ = huge;
  norms_.add(norm);
}

void SpikeJudge::broken(std::uint64_t step, double value, std::vector<SpikeFinding>& findings) {
  if (broken_) return;
  broken_ = true;
  const double usual = losses_.empty() ? value : losses_.median();
  findings.push_back({SpikeFinding::Kind::not_finite, spike_ ? spike_->began : step, step, value, usual,
                      spike_ ? spike_->highest : value});
  begin_anew();
}

void SpikeJudge::begin_anew() {
  spike_.reset();
  losses_.clear();
  norms_.clear();
  huge_norm_ = false;
}

}  // namespace maestro
