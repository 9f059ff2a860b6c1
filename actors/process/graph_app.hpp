// SPDX-License-Identifier: Apache-2.0
// An app whose composition is in its job file: `edges` at the top level, and a section for each table with a `type`.
//
// GF-1 (the file is the graph): every table with a key `type` is a section of that type, the only other section is the
//       source `corpus`, which [data] describes; every section stands in an edge, every edge joins two of them, and
//       they are composed in the order in which the edges first name them.
#pragma once

#include <string>
#include <vector>

#include "actors/process/app.hpp"

namespace maestro {

/// Reads `edges` of the top level: texts such as "corpus.tokens -> teacher.tokens".
[[nodiscard]] std::vector<std::string> read_edges(const JobTable& root);

/// Composes the sections and edges of the job file. Throws JobError at the place of the file, with the nearest valid
/// name, for what is no graph; ports are checked where the app is resolved, once their sections are built.
void compose_graph(App& app);

}  // namespace maestro
