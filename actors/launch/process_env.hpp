// SPDX-License-Identifier: Apache-2.0
// Finds out from the environment which process of its job this one is, as the program that started it says. Pure.
//
// PP-1: the innermost launcher counts: maestro's own variables, then torchrun's, then Open MPI's, then SLURM's. Open
//       MPI starts its daemons with srun, so both may be there.
// PP-2: all processes of a job find the same `hosts`, `root_host` and `root_port`. Hosts are numbered from 0 in the
//       order of their ranks, and the ranks of a host are neighbours: rank 0 is on host 0.
// PP-3: `root_port` is 0 in a job of one process only, and is never the same for all jobs unless the user sets it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Where this process stands in its job.
struct ProcessEnv {
  std::string launcher = "none";  ///< "none", "maestro", "torchrun", "Open MPI" or "SLURM"
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::int64_t local_rank = 0;             ///< among the processes of this host
  std::int64_t local_processes = 1;        ///< of this host
  std::vector<std::uint32_t> hosts = {0};  ///< by rank: its host
  std::string root_host = "127.0.0.1";     ///< where rank 0 is found: a name or an address
  std::uint16_t root_port = 0;             ///< of rank 0's rendezvous
  std::string token;                       ///< secret that all processes of the job have; empty: none was given
};

/// The value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(std::string_view)>;

/// That of this process.
[[nodiscard]] Environment process_environment();

/// A job of one process counts as started by none. MASTER_ADDR and MASTER_PORT say where rank 0 is under every foreign
/// launcher, MAESTRO_HOSTS ("0,0,1") which host each rank is on where torchrun and Open MPI do not tell, MAESTRO_TOKEN
/// the secret. Throws JobError, one line: variables that are half set, contradict each other, or are no numbers; hosts
/// whose ranks are not neighbours.
///
/// Where no port is given it is 61440 + a number of the job modulo 4096, as in JAX (jax/_src/clusters/slurm_cluster.py,
/// ompi_cluster.py): above the ports that Linux hands out by itself.
[[nodiscard]] ProcessEnv find_process_place(const Environment& environment);

}  // namespace maestro
