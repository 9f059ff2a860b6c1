// SPDX-License-Identifier: Apache-2.0
// Cuts the samples of a step into micro-batches, for each section by its own limits, leaving out the samples that do
// not activate it. Pure.
//
// MC-1 (each sample once): each sample is in exactly one micro-batch of every section it activates, and in none of the
//       others; a section that no sample activates has zero micro-batches.
// MC-2 (independent of placement): samples keep their order, and boundaries depend on the samples and the sections'
//       limits, not on replicas or processes: arithmetic is the same under every placement.
// MC-3 (limits): a micro-batch keeps to the limits, except that a sample with more rows than the bound is a separate
//       micro-batch.
// MC-4 (nesting): every micro-batch of a section that bounds rows, or runs for some samples only, is a union of
//       micro-batches of its first consumer, or lies inside such a micro-batch: so none ever waits for a gradient that
//       needs a later micro-batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Returns whether a section runs for a sample's source, and the sample has rows for all its required inputs.
[[nodiscard]] bool activates(const GraphNode& node, const SampleRef& sample);

/// Indices of samples in the step, ascending.
using CutBatch = std::vector<std::uint32_t>;
/// [section][micro-batch]
using StepCut = std::vector<std::vector<CutBatch>>;

/// Cuts the samples for every section. O(sections x samples).
[[nodiscard]] StepCut cut_step(const SectionGraph& graph, std::span<const SampleRef> samples);
/// Returns the micro-batches of a single section.
[[nodiscard]] std::vector<CutBatch> cut_section(const SectionGraph& graph, SectionId section,
                                                std::span<const SampleRef> samples);

/// Returns the most micro-batches of a section that a single downstream micro-batch can need if the section follows its
/// first consumer (MC-4), and 1 for any other section. In a chain of followers the micro-batch after the last follower
/// counts: all followers keep their micro-batches until it can begin. `largest`: the most rows that a sample has, by
/// axis.
[[nodiscard]] std::int64_t most_needed_at_once(const SectionGraph& graph, SectionId section, const SampleRef& largest);

}  // namespace maestro
