// SPDX-License-Identifier: Apache-2.0
// Cuts the samples of a step into micro-batches, for each section by its own limits, leaving out the samples that do
// not activate it. Pure.
//
// MC-1: each sample is in exactly one micro-batch of every section it activates, and in none of the others; a section
//       that no sample activates has no micro-batch.
// MC-2: samples keep their order, and boundaries depend on the samples and the sections' limits alone, not on replicas
//       or processes: arithmetic is the same under every placement.
// MC-3: a micro-batch keeps to the limits, except that one sample with more rows than the bound is a micro-batch.
// MC-4: micro-batches of a section that bounds rows, or runs for some samples only, are unions of whole micro-batches
// of
//       its first consumer, or lie inside one: none of them ever waits for a gradient that needs a later one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Whether a sample has rows for all required inputs of a section.
[[nodiscard]] bool activates(const GraphNode& node, const SampleRef& sample);

/// Places of samples in the step, ascending.
using CutBatch = std::vector<std::uint32_t>;
/// [section][micro-batch]
using StepCut = std::vector<std::vector<CutBatch>>;

/// O(sections x samples).
[[nodiscard]] StepCut cut_step(const SectionGraph& graph, std::span<const SampleRef> samples);

/// The most micro-batches of a section that one micro-batch behind it can need, where the section follows its first
/// consumer (MC-4); 1 for any other section. Of sections that follow each other it is the micro-batch behind the last
/// of them that counts: all keep theirs until it can begin. `largest`: the most rows that a sample has, by axis.
[[nodiscard]] std::int64_t most_needed_at_once(const SectionGraph& graph, SectionId section, const SampleRef& largest);

}  // namespace maestro
