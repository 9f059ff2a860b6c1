// SPDX-License-Identifier: Apache-2.0
// Checks of a resolved plan before anything starts. Each check throws JobError, a single line with the nearest valid
// value.
#pragma once

#include "actors/job/resolved_job.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Refuses a source of a mixture without samples, or so rare that no step has a sample of it. `mix` is the table of the
/// sources.
void check_sources(const Corpus& corpus, const JobTable& mix);
/// Fits the defaults of trained sections to a small batch: where replicas would be left without a micro-batch, a
/// `micro_batch` and then a number of `replicas` that the job does not give are lowered, with a note.
void fit_defaults(ResolvedJob& plan, const JobTable& root);
/// A batch that replicas cannot share evenly would leave some replicas idle in every step.
void check_batches(const ResolvedJob& plan);
/// A section that keeps too few micro-batches would wait for a gradient that needs its own next forward pass (FB-1).
void check_in_flight(const ResolvedJob& plan);
/// Sections that run for some samples only have an unbounded number of micro-batches per consumer micro-batch; they are
/// given slots for the worst case.
void raise_in_flight(ResolvedJob& plan);
/// Stages, replicas and ranks of a section are on separate devices.
void check_devices(const ResolvedJob& plan, std::int64_t devices);
/// Checks the memory that the job assigns to a device of each section. Called after placement.
void check_memory(const ResolvedJob& plan);
/// Emulated devices train nothing: no state to store or to resume from.
void check_emulated(ResolvedJob& plan);
/// Refuses settings that sections on CUDA devices do not support. Called after placement.
void check_cuda(const ResolvedJob& plan);
void check_trained(const ResolvedJob& plan);
/// Refuses weights that are neither trained nor loaded: their values would be noise, unless the job requests that.
void check_frozen(const ResolvedJob& plan, const JobTable& root);
/// Whether a section can recompute layers, or train adapters, where its table requests that.
void check_recompute(const SectionConfig& config, const GraphNode& node, const Section& meta_section);
void check_lora(const SectionConfig& config, const GraphNode& node, const Section& meta_section);
/// Whether a run makes checkpoints in memory, and from there goes on after a loss.
void check_shadows(ResolvedJob& plan);
/// Whether a run can do what guard.action wants.
void check_guard(const ResolvedJob& plan);
/// Refuses names in [plan] that are no sections.
void check_predictions(const ResolvedJob& plan, const JobTable& root);
/// Of sections with `least`: their replicas can move.
void check_placements(const ResolvedJob& plan);

}  // namespace maestro
