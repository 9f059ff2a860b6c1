// SPDX-License-Identifier: Apache-2.0
// Names the hosts and devices of a new plan so that most parts stay in their earlier places. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/job/job_document.hpp"

namespace maestro {

struct KeptPlaces {
  std::vector<std::string> settings;  ///< settings of the new plan, with other devices and processes
  std::vector<std::int64_t> hosts;    ///< host of each new process, as the old plan counts hosts; higher: a new host
  double moved_bytes = 0;
  double bytes = 0;  ///< all parts' bytes
};

/// Returns the places of `next`. `bytes`: bytes of a device, by section. Replicas of a section hold equal parts, so
/// they may swap places. Throws JobError with the section's name if a job lacks its devices or processes, or gives
/// another number than its layout needs.
[[nodiscard]] KeptPlaces kept_places(const JobDocument& old, const JobDocument& next, std::vector<std::string> settings,
                                     const std::map<std::string, double>& bytes, std::int64_t devices_of_host);

}  // namespace maestro
