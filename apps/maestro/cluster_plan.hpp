// SPDX-License-Identifier: Apache-2.0
// `maestro plan --cluster`, and the parts of `plan` that do not depend on where it plans.
#pragma once

#include <string>
#include <vector>

#include "actors/layouts/layout_search.hpp"
#include "apps/maestro/plan_command.hpp"

namespace maestro {

/// Plans for a described cluster and prints the choice. Returns the exit status. Throws JobError.
int plan_on_cluster(const PlanArguments& arguments, bool json, Console& console);

/// Returns "2 x m4 tensor 2 zero".
[[nodiscard]] std::string layout_text(const SectionLayout& layout);

/// Writes the job with the chosen keys to PlanArguments::out, where that is given, with a line of comment.
void write_planned_job(const PlanArguments& arguments, const std::vector<std::string>& settings,
                       const std::string& comment, Console& console);

}  // namespace maestro
