// SPDX-License-Identifier: Apache-2.0
// An app whose job file holds its composition: `edges` at the top level, and a section for each table with a `type`.
//
// GF-1 (the file is the graph): every table with a key `type` is a section of that type; the only other section is the
//       source `corpus`, which [data] describes. Every edge joins two sections, every section has an edge, and sections
//       are composed in the order of their first edges.
#pragma once

#include <string>
#include <vector>

#include "actors/process/app.hpp"

namespace maestro {

/// Reads the top-level key `edges`: texts such as "corpus.tokens -> teacher.tokens".
[[nodiscard]] std::vector<std::string> read_edges(const JobTable& root);

/// Composes the sections and edges of the job file. If they do not form a graph, throws JobError with the place in the
/// file and the nearest valid name. Ports are checked when the app is resolved, after their sections were built.
void compose_graph(App& app);

}  // namespace maestro
