// SPDX-License-Identifier: Apache-2.0
// Hosts and devices of a new plan, named so that most of it stays where an earlier plan has it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/job/job_document.hpp"

namespace maestro {

struct KeptPlaces {
  std::vector<std::string> settings;  ///< the new plan's, with other devices and processes
  std::vector<std::int64_t> hosts;    ///< by process of the new plan: that of the old plan; beyond those a new host
  double moved_bytes = 0;
  double bytes = 0;  ///< of the parts that both plans have
};

/// `bytes`: of a device, by section. Replicas of a section hold the same, so that any may take the place of another.
/// Throws JobError, naming the section, where `old` has no devices or processes for one, or not as many as its layout
/// needs.
[[nodiscard]] KeptPlaces kept_places(const JobDocument& old, const JobDocument& next, std::vector<std::string> settings,
                                     const std::map<std::string, double>& bytes, std::int64_t devices_of_host);

}  // namespace maestro
