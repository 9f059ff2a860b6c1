// SPDX-License-Identifier: Apache-2.0
// Finds this process' place in its job from options and environment. Pure.
//
// LI-1 (launcher decides): only a cluster launcher determines the number of processes, their hosts and rank 0.
// LI-2 (own start): without a launcher the process is rank 0. The job has `processes` processes on this host, or a
//       process for each entry of `hosts`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "actors/launch/process_env.hpp"

namespace maestro {

struct PlaceRequest {
  std::int64_t processes = 0;  ///< number on this machine; 0: not given
  std::string hosts = {};  ///< "a,b:2": a process on a and two on b; the first host is this machine. Empty: not given
  bool joins = false;      ///< the command may be a process of a cluster launcher's job
};

struct LaunchInfo {
  ProcessEnv place;
  std::vector<std::string> host_names;  ///< names of hosts as in `hosts`; empty unless given
  /// Returns whether this process starts the others.
  [[nodiscard]] bool starts_others() const { return place.launcher == JobLauncher::none && place.processes > 1; }
  [[nodiscard]] bool several_hosts() const { return place.hosts.back() > 0; }
};

/// Returns this process' place. Throws JobError for contradictory options and variables, or an invalid entry of
/// `hosts`.
[[nodiscard]] LaunchInfo find_run_place(const PlaceRequest& request, const Environment& environment);

/// Returns the number of a host's devices, equal in every process if the hosts are equal. A cluster launcher may have
/// bound each process to some cores: `own_cores` counts this process' cores, `cores` the machine's.
[[nodiscard]] std::int64_t devices_of_host(const ProcessEnv& place, std::int64_t own_cores, std::int64_t cores);

/// Names of hosts in order, and each rank's host.
struct HostList {
  std::vector<std::string> names;
  std::vector<std::uint32_t> by_rank;
};
/// Parses PlaceRequest::hosts. Throws JobError.
[[nodiscard]] HostList parse_hosts(std::string_view text);

/// Returns the environment of rank `rank` of `place`: "MAESTRO_RANK=1", ... `place.joins` is set for a process that
/// joins a running job.
[[nodiscard]] std::vector<std::string> place_variables(const ProcessEnv& place, std::int64_t rank);

}  // namespace maestro
