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
  /// Begins a lesson; the next losses are of its rows. `made`: as Lesson::made.
  void begin_lesson(bool made);
  /// Adds the losses of the lesson's rows for a teacher; the shares of a lesson's teachers sum to 1.
  void add(std::size_t teacher, double share, const Pending<LossSums>& sums);
  /// Adds the losses of a lesson without a teacher: the cross-entropy is this share of the loss.
  void add_untaught(double share, const Pending<LossSums>& sums);

  /// Returns the first losses, if they are the only ones.
  [[nodiscard]] const Pending<LossSums>& only() const { return losses_.front().sums; }
  struct Teacher {
    std::string name;
    bool knows_cross_entropy = true;
    bool knows_divergence = true;  ///< on read rows
  };
  struct Figures {
    bool by_origin = false;  ///< made rows and read rows have separate figures
    bool ratio = false;      ///< made rows have a ratio
  };
  /// Reports loss, ce and, if all teachers know them, kl and teacher_ce; of several teachers also kl_NAME and
  /// teacher_ce_NAME of each that has rows here. With `by_origin` kl and kl_NAME are over made rows, which also have
  /// sampled_nll, their cross-entropy, and with `ratio` ratio_mean and ratio_capped; ce and teacher_ce are over read
  /// rows, which have kl_read and kl_read_NAME. Figures without a row are left out.
  void report(Outputs& outputs, const std::vector<Teacher>& teachers, Figures figures) const;

 private:
  struct Losses {
    std::optional<std::size_t> teacher;
    double share = 1;  // share in the means over teachers
    double share_of_loss = 1;
    bool counts = false;  // its tokens count: the first losses of a lesson
    bool made = false;
    Pending<LossSums> sums;
  };
  static void report(Outputs& outputs, std::string name, double LossSums::*figure, std::vector<Losses> losses);
  /// Reports all figures but the loss, with `kl` as the name of the divergence.
  static void report_read(Outputs& outputs, const std::vector<Teacher>& teachers, const std::vector<Losses>& losses,
                          const std::string& kl);
  static void report_made(Outputs& outputs, const std::vector<Teacher>& teachers, const std::vector<Losses>& losses,
                          bool ratio);
  [[nodiscard]] static std::vector<Losses> of_teacher(const std::vector<Losses>& losses, std::size_t teacher);

  std::vector<Losses> losses_;
  bool begun_ = false;
  bool made_ = false;
};

}  // namespace maestro
