// SPDX-License-Identifier: Apache-2.0
// The devices and processes that a job names for sections and their stages, and the placement of its replicas.
#pragma once

#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/job/config.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

/// Returns the processes of a stage by replica. With chunks, stage s has the processes of stage s mod `pipeline`.
[[nodiscard]] std::vector<std::int64_t> processes_of_stage(const SectionConfig& config, std::int64_t stage);
/// Returns the devices of a stage; a section lists devices by replica, and within a replica by stage.
[[nodiscard]] std::vector<DeviceId> devices_of_stage(const SectionConfig& config, std::int64_t stage);
/// Throws JobError if a section with stages names a core or GPU twice.
void check_named_once(const SectionConfig& config);

/// Refuses the name of a section that is none of `names`, with the nearest.
[[noreturn]] void refuse_devices_of(const SectionConfig& config, const JobTable& settings,
                                    const std::vector<std::string>& names);
/// Gives a section the devices that the section in its `devices` names. Throws JobError if that section uses a third
/// one's devices or joins later, or if processes are named.
void take_devices(SectionConfig& config, const JobTable& settings, const SectionConfig& other);

/// Places all replicas of the job. Throws the errors of place() and check_devices().
void place_sections(ResolvedJob& plan, const RunOptions& run);

}  // namespace maestro
