// SPDX-License-Identifier: Apache-2.0
// Resolves which process of its job this process is, from options and environment. Pure.
//
// LI-1 (launcher decides): a cluster launcher alone determines the number of processes, their hosts and rank 0.
// LI-2 (own start): without a launcher the process is rank 0 of `processes` on this host, or of a process per entry of
//       `hosts`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "actors/launch/process_env.hpp"

namespace maestro {

struct PlaceRequest {
  std::int64_t processes = 0;  ///< on this machine; 0: not given
  std::string hosts = {};  ///< "a,b:2": a process on a and two on b; the first host is this machine. Empty: not given
  bool joins = false;      ///< the command may be a process of a cluster launcher's job
};

struct LaunchInfo {
  ProcessEnv place;
  std::vector<std::string> host_names;  ///< by host, as in `hosts`; empty unless given
  /// This process starts the others.
  [[nodiscard]] bool starts_others() const { return place.launcher == JobLauncher::none && place.processes > 1; }
  [[nodiscard]] bool several_hosts() const { return place.hosts.back() > 0; }
};

/// Throws JobError: contradicting options and variables, an invalid entry of `hosts`.
[[nodiscard]] LaunchInfo find_run_place(const PlaceRequest& request, const Environment& environment);

/// Returns the devices of a host, equal in every process of a job on like hosts. A cluster launcher may have bound each
/// process to its own cores: `own_cores` are those of this process, `cores` those of the machine.
[[nodiscard]] std::int64_t devices_of_host(const ProcessEnv& place, std::int64_t own_cores, std::int64_t cores);

/// Parses `hosts`: names in order, and the host of each rank. Throws JobError.
struct HostList {
  std::vector<std::string> names;
  std::vector<std::uint32_t> by_rank;
};
[[nodiscard]] HostList parse_hosts(std::string_view text);

/// Returns the environment of rank `rank` of `place`: "MAESTRO_RANK=1", ... Of a process that joins a running job,
/// `place.joins` is set.
[[nodiscard]] std::vector<std::string> place_variables(const ProcessEnv& place, std::int64_t rank);

}  // namespace maestro
