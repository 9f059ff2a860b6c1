// SPDX-License-Identifier: Apache-2.0
// Figures of a pass with several lessons: means over rows and, weighted by shares, over teachers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ops/distillation_options.hpp"
#include "sections/section.hpp"

namespace maestro {

class LessonSums {
 public:
  /// Begins a lesson; the next losses are of its rows.
  void begin_lesson() { begun_ = true; }
  /// Adds the losses of the lesson's rows for a teacher; the shares of a lesson's teachers sum to 1.
  void add(std::size_t teacher, double share, const Pending<LossSums>& sums);
  /// Adds the losses of a lesson without a teacher: the cross-entropy is this share of the loss.
  void add_untaught(double share, const Pending<LossSums>& sums);

  /// Returns the first losses, if they are the only ones.
  [[nodiscard]] const Pending<LossSums>& only() const { return losses_.front().sums; }
  struct Teacher {
    std::string name;
    bool knows_cross_entropy = true;
  };
  /// Reports loss, ce, kl and, if all teachers know it, teacher_ce; of several teachers also kl_NAME of each that has
  /// rows here, and teacher_ce_NAME if it knows it.
  void report(Outputs& outputs, const std::vector<Teacher>& teachers) const;

 private:
  struct Losses {
    std::optional<std::size_t> teacher;
    double share = 1;  // share in the means over teachers
    double share_of_loss = 1;
    bool counts = false;  // its tokens count: the first losses of a lesson
    Pending<LossSums> sums;
  };
  static void report(Outputs& outputs, std::string name, double LossSums::*figure, std::vector<Losses> losses);
  [[nodiscard]] std::vector<Losses> of_teacher(std::size_t teacher) const;

  std::vector<Losses> losses_;
  bool begun_ = false;
};

}  // namespace maestro
