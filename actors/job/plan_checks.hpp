// SPDX-License-Identifier: Apache-2.0
// Checks a resolved plan before anything starts. Each check throws JobError, a single line with the nearest valid
// value.
#pragma once

#include "actors/job/resolved_job.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Refuses a mixture's source without samples, and a source so rare that no step has a sample of it. `mix` is the table
/// of the sources.
void check_sources(const Corpus& corpus, const JobTable& mix);
/// Fits the defaults of trained sections to a small batch. If a replica would be left without a micro-batch, lowers
/// `micro_batch` and then `replicas`, unless the job sets them, with a note.
void fit_defaults(ResolvedJob& plan, const JobTable& root);
/// Gives sections that use another section's devices as many replicas as fit these. Throws JobError if they do not
/// divide the devices, or if the job gives another number.
void follow_devices(ResolvedJob& plan, const JobTable& root);
/// Refuses a batch with fewer micro-batches than replicas, which would leave replicas idle in every step.
void check_batches(const ResolvedJob& plan);
/// Refuses a section that keeps too few micro-batches: it would wait for a gradient that needs its next forward pass
/// (FB-1).
void check_in_flight(const ResolvedJob& plan);
/// Gives sections that run only for some samples slots for the worst case: a consumer's micro-batch may need any number
/// of their micro-batches.
void raise_in_flight(ResolvedJob& plan);
/// Refuses a section that needs more devices than there are: stages, replicas and ranks are on separate devices.
void check_devices(const ResolvedJob& plan, std::int64_t devices);
/// Lets each stage s of P keep 2P - s micro-batches in flight, P more than it needs, if the job gives no number: it
/// then goes on while samples of other sizes, or sections on its devices, hold up the others. On cores, and wherever
/// memory_mib is given and suffices; with a note where it does not. Called after placement.
void add_slack(ResolvedJob& plan, const JobTable& root);
/// Checks the memory that the job assigns to a device of each section. Called after placement.
void check_memory(const ResolvedJob& plan);
/// Refuses settings that store or resume state if a section is on emulated devices, which train nothing.
void check_emulated(ResolvedJob& plan);
/// Refuses settings that sections on CUDA devices do not support. Called after placement.
void check_cuda(const ResolvedJob& plan);
/// Refuses data with sounds next to images if no section reads them, and a section `hearing` (empty: none) if the data
/// lack them. `data` is the job's table.
void check_sounds(const Corpus& corpus, const std::string& hearing, const JobTable& data);
/// Refuses a section that would miss rows for the image tokens of its samples.
void check_visual(const ResolvedJob& plan);
void check_trained(const ResolvedJob& plan);
/// Refuses weights that are neither trained nor loaded: their values would be random, unless the job requests that.
void check_frozen(const ResolvedJob& plan, const JobTable& root);
/// Checks that a section can have its replicas, and its ranks.
void check_spread(const SectionConfig& config, const GraphNode& node, Section& meta_section);
/// Refuses ranks that share experts in a section without experts; `whole` has the layers of all stages.
void check_owns_experts(const GraphNode& node, Section& whole);
/// Checks that a section can recompute layers if its table requests that.
void check_recompute(const SectionConfig& config, const GraphNode& node, const Section& meta_section);
/// Checks that a section can train adapters if its table requests that.
void check_lora(const SectionConfig& config, const GraphNode& node, const Section& meta_section);
/// Checks that a run with train.shadow_every can make checkpoints in memory and continue from them after a loss.
void check_shadows(ResolvedJob& plan);
/// Checks that a run can carry out guard.action.
void check_guard(const ResolvedJob& plan);
/// Refuses names in [plan] that are not sections.
void check_predictions(const ResolvedJob& plan, const JobTable& root);
/// Checks that the replicas of sections with `least` can move.
void check_placements(const ResolvedJob& plan);

}  // namespace maestro
