// SPDX-License-Identifier: Apache-2.0
// Parses the two compressed lists that SLURM passes to its tasks (man sbatch, "OUTPUT ENVIRONMENT VARIABLES"; man
// scontrol, "hostlist"). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Returns the first host: "node[01-03,7]-ib,other" -> "node01-ib". Throws JobError that names `variable`.
[[nodiscard]] std::string first_host_of(std::string_view list, std::string_view variable);

/// Returns tasks by node: "2(x3),1" -> {2, 2, 2, 1}. Throws JobError that names `variable`.
[[nodiscard]] std::vector<std::int64_t> tasks_by_node(std::string_view list, std::string_view variable);

}  // namespace maestro
