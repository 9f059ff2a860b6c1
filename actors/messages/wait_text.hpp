// SPDX-License-Identifier: Apache-2.0
// "Who waits for whom" in words. Pure.
#pragma once

#include <string>

#include "actors/messages/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// "tokens from section 'corpus' replica 0, sample 7, step 3"; empty when the replica is busy or has nothing to do.
[[nodiscard]] std::string wait_text(const WaitingFor& waiting, const SectionGraph& graph);

/// "input", "credit", ...
[[nodiscard]] std::string name_of(WaitKind kind);

}  // namespace maestro
