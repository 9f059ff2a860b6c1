// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/lesson_sums.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

void LessonSums::add(std::size_t teacher, double share, const Pending<LossSums>& sums) {
  losses_.push_back({teacher, share, share, std::exchange(begun_, false), sums});
}

void LessonSums::add_untaught(double share, const Pending<LossSums>& sums) {
  losses_.push_back({{}, 1, share, std::exchange(begun_, false), sums});
}

void LessonSums::report(Outputs& outputs, std::string name, double LossSums::*figure, std::vector<Losses> losses) {
  outputs.metric([name = std::move(name), figure, losses = std::move(losses)] {
    MetricSum metric{name, 0, 0};
    for (const Losses& each : losses) {
      const LossSums sums = each.sums.get();
      metric.sum += (figure == &LossSums::total ? each.share_of_loss : each.share) * (sums.*figure);
      if (each.counts) metric.weight += static_cast<double>(sums.tokens);
    }
    return metric;
  });
}

std::vector<LessonSums::Losses> LessonSums::of_teacher(std::size_t teacher) const {
  std::vector<Losses> found;
  for (const Losses& losses : losses_) {
    if (losses.teacher == teacher) found.push_back({teacher, 1, 1, true, losses.sums});
  }
  return found;
}

void LessonSums::report(Outputs& outputs, const std::vector<Teacher>& teachers) const {
  report(outputs, "loss", &LossSums::total, losses_);
  report(outputs, "ce", &LossSums::ce, losses_);
  report(outputs, "kl", &LossSums::kl, losses_);
  if (std::ranges::all_of(teachers, &Teacher::knows_cross_entropy)) {
    report(outputs, "teacher_ce", &LossSums::teacher_ce, losses_);
  }
  for (std::size_t at = 0; at < teachers.size() && teachers.size() > 1; ++at) {
    const std::vector<Losses> own = of_teacher(at);
    if (own.empty()) continue;
    report(outputs, "kl_" + teachers[at].name, &LossSums::kl, own);
    if (teachers[at].knows_cross_entropy)
      report(outputs, "teacher_ce_" + teachers[at].name, &LossSums::teacher_ce, own);
  }
}

}  // namespace maestro
