// SPDX-License-Identifier: Apache-2.0
// `maestro plan --cluster`.
#pragma once

#include "apps/maestro/plan_command.hpp"

namespace maestro {

/// Plans for a described cluster and prints the choice. Returns the exit status. Throws JobError.
int plan_on_cluster(const PlanArguments& arguments, bool json, Console& console);

}  // namespace maestro
