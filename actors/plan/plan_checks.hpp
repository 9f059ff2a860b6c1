// SPDX-License-Identifier: Apache-2.0
// What must hold of a resolved plan before anything starts. Each check throws JobError in one line with the nearest
// thing that fits.
#pragma once

#include "actors/plan/job_plan.hpp"

namespace maestro {

/// A batch that replicas cannot share evenly would leave some of them idle in every step.
void check_batches(const JobPlan& plan);
/// A section that keeps too few micro-batches would wait for a gradient that needs its own next forward pass (FB-1).
void check_in_flight(const JobPlan& plan);
/// Sections that run for some samples only cannot say beforehand how many micro-batches a consumer takes at once; they
/// keep room for the worst case.
void raise_in_flight(JobPlan& plan);
/// Stages of one section are on devices of their own, as its replicas and ranks are.
void check_devices(const JobPlan& plan, std::int64_t devices);
/// Against the memory that the job gives a device of each section.
void check_memory(const JobPlan& plan);
/// Nothing is learnt on emulated devices, so there is nothing to keep, and nothing to start from.
void check_emulated(JobPlan& plan);
/// What sections on CUDA devices cannot do. After placement.
void check_cuda(const JobPlan& plan);
void check_trained(const JobPlan& plan);

}  // namespace maestro
