// SPDX-License-Identifier: Apache-2.0
// Describes what a replica waits for. Pure.
#pragma once

#include <string>

#include "actors/messages/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Returns "tokens from section 'corpus' replica 0, sample 7, step 3"; empty if the replica is busy or idle.
[[nodiscard]] std::string wait_text(const WaitingFor& waiting, const SectionGraph& graph);

/// Returns "input", "credit", ...
[[nodiscard]] std::string name_of(WaitKind kind);

}  // namespace maestro
