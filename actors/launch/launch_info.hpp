// SPDX-License-Identifier: Apache-2.0
// Which process of its job a run is, out of what a person asked for and what the environment says. Pure.
//
// RP-1 (place): a launcher of clusters decides alone: how many processes there are, where, and who is rank 0.
// RP-2 (place): otherwise the process is rank 0 of `processes` on this host, or of one per entry of `hosts`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "actors/launch/process_env.hpp"

namespace maestro {

struct PlaceRequest {
  std::int64_t processes = 0;  ///< on this machine; 0: not said
  std::string hosts = {};  ///< "a,b:2": a process per host, two on b; the first one is this machine. Empty: not said
  bool joins = false;      ///< the command may be one process of a cluster launcher's job
};

struct LaunchInfo {
  ProcessEnv place;
  std::vector<std::string> host_names;  ///< by host, as in `hosts`; empty unless it was given
  /// This process starts the others.
  [[nodiscard]] bool starts_others() const { return place.launcher == "none" && place.processes > 1; }
  [[nodiscard]] bool several_hosts() const { return place.hosts.back() > 0; }
};

/// Throws JobError: options and variables that contradict each other, an entry of `hosts` that is none.
[[nodiscard]] LaunchInfo find_run_place(const PlaceRequest& request, const Environment& environment);

/// Devices of a host, as every process of a job on like hosts finds them. A cluster's launcher may have bound each
/// process to cores of its own: `own_cores` are those of this process, `cores` those of the machine.
[[nodiscard]] std::int64_t devices_of_host(const ProcessEnv& place, std::int64_t own_cores, std::int64_t cores);

/// What `hosts` says: names in order, and which of them each rank is on. Throws JobError.
struct HostList {
  std::vector<std::string> names;
  std::vector<std::uint32_t> by_rank;
};
[[nodiscard]] HostList parse_hosts(std::string_view text);

/// Where rank `rank` of `place` is, as a started process finds it in its environment: "MAESTRO_RANK=1", ...
[[nodiscard]] std::vector<std::string> place_variables(const ProcessEnv& place, std::int64_t rank);

}  // namespace maestro
