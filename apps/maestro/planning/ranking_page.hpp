// SPDX-License-Identifier: Apache-2.0
// The page of layouts that were ranked for this machine. Pure.
#pragma once

#include <string>

#include "apps/maestro/planning/plan_page.hpp"
#include "apps/plan/job_planner.hpp"

namespace maestro {

/// Returns the page. `best`: the layout that is written; `timeline`: its rehearsal.
[[nodiscard]] PlanPage ranking_page(const std::string& title, const LayoutRanking& ranking, const RankedLayout& best,
                                    std::int64_t global_batch, Timeline timeline);

}  // namespace maestro
