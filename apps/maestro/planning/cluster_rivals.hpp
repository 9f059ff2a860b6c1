// SPDX-License-Identifier: Apache-2.0
// Compares a plan for a cluster with other divisions of its sections, for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/plan/cluster_planner.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {

/// Prints the lines "why not" and "stable", as far as divisions were compared.
void print_rivals(const ClusterChoice& chosen);
/// Adds the keys "rivals" and "sure".
void add_rivals(const ClusterChoice& chosen, nlohmann::ordered_json& answer);
/// Returns tables for the page.
[[nodiscard]] std::vector<PageTable> rival_tables(const ClusterChoice& chosen);

}  // namespace maestro
