// SPDX-License-Identifier: Apache-2.0
// The section graph of a job in words, for Graphviz, and as a drawing. Pure.
#pragma once

#include <map>
#include <string>

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// A planned job with the types of its sections, by the names of the job file.
struct PrintedGraph {
  const ResolvedJob& plan;
  std::map<std::string, std::string> types;
};

/// Returns a line for each section (each stage, if it has several) with its role, replicas, layout, micro-batch
/// and place, and for each edge with dtype, columns and axis, and whether a gradient returns.
[[nodiscard]] std::string graph_text(const PrintedGraph& graph);
/// Returns the same in Graphviz' language.
[[nodiscard]] std::string graph_dot(const PrintedGraph& graph);
/// Returns the same as an SVG document.
[[nodiscard]] std::string graph_svg(const PrintedGraph& graph);

}  // namespace maestro
