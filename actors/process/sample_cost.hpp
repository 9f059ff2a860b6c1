// SPDX-License-Identifier: Apache-2.0
// The cost of a sample by the sections' own models.
#pragma once

#include <memory>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Returns FLOPs of a sample, from the sections' own models; a backward pass counts twice the forward pass, or once
/// where the section's parameters are frozen, and the layers that are computed again.
[[nodiscard]] SampleCost sample_cost(const SectionGraph& graph,
                                     std::vector<std::shared_ptr<const Section>> meta_sections);

}  // namespace maestro
