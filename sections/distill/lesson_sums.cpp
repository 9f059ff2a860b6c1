// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/lesson_sums.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace maestro {

void LessonSums::begin_lesson(bool made) {
  begun_ = true;
  made_ = made;
}

void LessonSums::add(std::size_t teacher, double share, const Pending<LossSums>& sums) {
  losses_.push_back({teacher, share, share, std::exchange(begun_, false), made_, sums});
}

void LessonSums::add_untaught(double share, const Pending<LossSums>& sums) {
  losses_.push_back({{}, 1, share, std::exchange(begun_, false), made_, sums});
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

std::vector<LessonSums::Losses> LessonSums::of_teacher(const std::vector<Losses>& losses, std::size_t teacher) {
  std::vector<Losses> found;
  for (const Losses& each : losses) {
    if (each.teacher == teacher) found.push_back({teacher, 1, 1, true, each.made, each.sums});
  }
  return found;
}

void LessonSums::report_read(Outputs& outputs, const std::vector<Teacher>& teachers, const std::vector<Losses>& losses,
                             const std::string& kl) {
  report(outputs, "ce", &LossSums::ce, losses);
  if (std::ranges::all_of(teachers, &Teacher::knows_divergence)) report(outputs, kl, &LossSums::kl, losses);
  if (std::ranges::all_of(teachers, &Teacher::knows_cross_entropy)) {
    report(outputs, "teacher_ce", &LossSums::teacher_ce, losses);
  }
  for (std::size_t at = 0; at < teachers.size() && teachers.size() > 1; ++at) {
    const std::vector<Losses> own = of_teacher(losses, at);
    if (own.empty()) continue;
    if (teachers[at].knows_divergence) report(outputs, kl + "_" + teachers[at].name, &LossSums::kl, own);
    if (teachers[at].knows_cross_entropy)
      report(outputs, "teacher_ce_" + teachers[at].name, &LossSums::teacher_ce, own);
  }
}

void LessonSums::report_made(Outputs& outputs, const std::vector<Teacher>& teachers, const std::vector<Losses>& losses,
                             bool ratio) {
  report(outputs, "kl", &LossSums::kl, losses);
  for (std::size_t at = 0; at < teachers.size() && teachers.size() > 1; ++at) {
    const std::vector<Losses> own = of_teacher(losses, at);
    if (!own.empty()) report(outputs, "kl_" + teachers[at].name, &LossSums::kl, own);
  }
  report(outputs, "sampled_nll", &LossSums::ce, losses);
  if (!ratio) return;
  report(outputs, "ratio_mean", &LossSums::ratio, losses);
  report(outputs, "ratio_capped", &LossSums::capped, losses);
}

void LessonSums::report(Outputs& outputs, const std::vector<Teacher>& teachers, Figures figures) const {
  report(outputs, "loss", &LossSums::total, losses_);
  if (!figures.by_origin) return report_read(outputs, teachers, losses_, "kl");
  std::vector<Losses> made, read;
  std::ranges::partition_copy(losses_, std::back_inserter(made), std::back_inserter(read), &Losses::made);
  if (!read.empty()) report_read(outputs, teachers, read, "kl_read");
  if (!made.empty()) report_made(outputs, teachers, made, figures.ratio);
}

}  // namespace maestro
