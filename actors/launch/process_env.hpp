// SPDX-License-Identifier: Apache-2.0
// Finds this process' place in its job from its launcher's environment variables. Pure.
//
// PP-1 (innermost launcher): the innermost launcher counts: maestro's variables, then torchrun's, then Open MPI's, then
//       SLURM's. Open MPI starts its daemons with srun, so both may be present.
// PP-2 (agreement): all processes of a job find the same `hosts`, `root_host` and `root_port`. Hosts are numbered from
//       0 in the order of their ranks, and a host's ranks are consecutive: rank 0 is on host 0.
// PP-3 (port per job): `root_port` is 0 in a job with a single process; otherwise it depends on the job unless the user
//       sets it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

enum class JobLauncher : std::uint8_t { none, maestro, torchrun, open_mpi, slurm };

[[nodiscard]] constexpr std::string_view name_of(JobLauncher launcher) {
  constexpr std::array<std::string_view, 5> names{"none", "maestro", "torchrun", "Open MPI", "SLURM"};
  return names[static_cast<std::size_t>(launcher)];
}

/// A process' place in its job.
struct ProcessEnv {
  JobLauncher launcher = JobLauncher::none;
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::int64_t local_rank = 0;             ///< rank among the processes of this host
  std::int64_t local_processes = 1;        ///< processes of this host
  std::vector<std::uint32_t> hosts = {0};  ///< hosts by rank
  std::string root_host = "127.0.0.1";     ///< name or address of rank 0
  std::uint16_t root_port = 0;             ///< port of rank 0's rendezvous
  std::string token;                       ///< secret shared by all processes of the job; empty: none
  /// Section whose replicas this process takes over in a running job; `processes` and `hosts` do not count this rank.
  std::string joins;
  std::string join_devices;  ///< devices of these replicas: "cpu:2,cpu:3"; empty: automatic

  /// Returns whether a cluster launcher has started the process.
  [[nodiscard]] bool foreign() const { return launcher != JobLauncher::none && launcher != JobLauncher::maestro; }
};

/// Function that returns a variable's value, or nothing.
using Environment = std::function<std::optional<std::string>(std::string_view)>;

/// Returns the environment of this process.
[[nodiscard]] Environment process_environment();

/// Finds the place of a process; a job with a single process counts as not launched. MASTER_ADDR and MASTER_PORT name
/// rank 0 under every foreign launcher, MAESTRO_TOKEN the secret, and MAESTRO_HOSTS ("0,0,1") each rank's host if
/// torchrun or Open MPI does not report it. Throws JobError, a single line, for variables that are partly set,
/// contradict each other or are not numbers, and for hosts with ranks that are not consecutive.
///
/// The default port is 61440 + a number of the job modulo 4096, as in JAX (jax/_src/clusters/slurm_cluster.py,
/// ompi_cluster.py): above Linux's range of ephemeral ports.
[[nodiscard]] ProcessEnv find_process_place(const Environment& environment);

}  // namespace maestro
