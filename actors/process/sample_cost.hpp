// SPDX-License-Identifier: Apache-2.0
// The cost of a sample by the sections' FLOP models.
#pragma once

#include <memory>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Returns the FLOPs of a sample by the sections' models. A backward pass counts as two forward passes, or as one if
/// the section's parameters are frozen, plus the layers that are computed again.
[[nodiscard]] SampleCost sample_cost(const SectionGraph& graph,
                                     std::vector<std::shared_ptr<const Section>> meta_sections);

}  // namespace maestro
