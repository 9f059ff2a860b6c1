// SPDX-License-Identifier: Apache-2.0
// A run's outcome as figures: a distillation's comparison, the accuracy of answers, or the last losses. Pure.
#pragma once

#include <vector>

#include "runtime/page/run_page.hpp"

namespace maestro {

/// Returns figures of the last validations or, without any, of the last steps. A distillation has the cross-entropies
/// of teacher, students and students without a teacher, and the gain; answers have their accuracy; other jobs have
/// losses.
/// The names of a distillation's figures end in "(training)" if they are not from validations.
[[nodiscard]] std::vector<PageFigure> result_figures(const std::vector<RunValidation>& validations,
                                                     const std::vector<RunCurve>& curves);

}  // namespace maestro
