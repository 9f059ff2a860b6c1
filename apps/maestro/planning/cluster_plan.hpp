// SPDX-License-Identifier: Apache-2.0
// `maestro plan --cluster`.
#pragma once

#include "apps/maestro/planning/plan_arguments.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Plans for a described cluster and prints the choice. Returns the exit status. Throws JobError.
int plan_on_cluster(const PlanArguments& arguments, Console& console);

}  // namespace maestro
