// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/process_env.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "actors/launch/slurm_lists.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

constexpr std::int64_t most_processes = 1 << 20;
constexpr std::uint32_t first_job_port = 61440;
constexpr std::uint32_t job_ports = 4096;

/// Strict access to environment variables.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool has(std::string_view name) const { return text(name).has_value(); }

  /// Returns a variable's text; an empty variable counts as unset.
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    auto value = environment_(name);
    return value && value->empty() ? std::nullopt : value;
  }

  [[nodiscard]] std::string text(std::string_view name, std::string_view needed_by) const {
    if (auto value = text(name)) return *std::move(value);
    throw JobError(std::string(name) + " is not set, but " + std::string(needed_by) + " is: set both or neither");
  }

  /// Returns a variable's number, or nothing. Throws if it is not from `least` to `most`.
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name, std::int64_t least, std::int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t number = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error == std::errc{} && stop == end && number >= least && number <= most) return number;
    throw JobError(std::string(name) + " = \"" + printable(*value) + "\" is not a number from " +
                   std::to_string(least) + " to " + std::to_string(most));
  }

  [[nodiscard]] std::int64_t number(std::string_view name, std::int64_t least, std::int64_t most,
                                    std::string_view needed_by) const {
    static_cast<void>(text(name, needed_by));
    return *number(name, least, most);
  }

 private:
  const Environment& environment_;
};

std::string shown(std::string_view name, std::int64_t value) {
  return std::string(name) + " = " + std::to_string(value);
}

/// Reads the rank and the number of processes from variables of these names.
void read_rank(const Variables& variables, std::string_view rank, std::string_view processes, ProcessEnv& place) {
  place.processes = variables.number(processes, 1, most_processes, rank);
  place.rank = variables.number(rank, 0, most_processes, processes);
  if (place.rank < place.processes || !place.joins.empty()) return;
  throw JobError(shown(rank, place.rank) + " does not fit " + shown(processes, place.processes) +
                 ": ranks count from 0");
}

/// Returns the hosts by rank from MAESTRO_HOSTS, "0,0,1"; empty: not set.
std::vector<std::uint32_t> given_hosts(const Variables& variables, std::int64_t processes) {
  const auto list = variables.text("MAESTRO_HOSTS");
  if (!list) return {};
  std::vector<std::uint32_t> hosts;
  for (std::size_t begin = 0, end = 0; begin <= list->size(); begin = end + 1) {
    end = std::min(list->find(',', begin), list->size());
    const std::string_view word = std::string_view(*list).substr(begin, end - begin);
    std::uint32_t host = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), host);
    const std::uint32_t next = hosts.empty() ? 0 : hosts.back() + 1;
    const bool in_order = host == next || (!hosts.empty() && host == hosts.back());
    if (error != std::errc{} || stop != word.data() + word.size() || !in_order) {
      throw JobError("MAESTRO_HOSTS = \"" + printable(*list) +
                     "\": expected the host of every rank, numbered from 0 in the order " +
                     "of the ranks, such as \"0,0,1\"; ranks of a host must be consecutive");
    }
    hosts.push_back(host);
  }
  if (std::ssize(hosts) == processes) return hosts;
  throw JobError("MAESTRO_HOSTS = \"" + printable(*list) + "\" names the hosts of " + std::to_string(hosts.size()) +
                 " processes, but there are " + std::to_string(processes));
}

/// Sets the fields that follow from `rank` and `hosts`.
void set_hosts(ProcessEnv& place, std::vector<std::uint32_t> hosts) {
  place.hosts = std::move(hosts);
  if (!place.joins.empty()) return;
  const std::uint32_t host = place.hosts[static_cast<std::size_t>(place.rank)];
  const auto [first, last] = std::equal_range(place.hosts.begin(), place.hosts.end(), host);
  place.local_rank = place.rank - (first - place.hosts.begin());
  place.local_processes = last - first;
}

/// Throws if the launcher's local rank differs from the local rank by `hosts`.
void check_local_rank(const Variables& variables, std::string_view name, const ProcessEnv& place,
                      const std::string& remedy) {
  const auto local_rank = variables.number(name, 0, most_processes);
  if (!local_rank || *local_rank == place.local_rank) return;
  throw JobError("rank " + std::to_string(place.rank) + " has " + shown(name, *local_rank) + ", expected " +
                 std::to_string(place.local_rank) + ": ranks of a host must be consecutive; " + remedy);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Returns hosts by rank, with equally many processes on each.
std::vector<std::uint32_t> even_hosts(std::int64_t processes, std::int64_t per_host, std::string_view name) {
  if (processes % per_host != 0) {
    throw JobError(std::to_string(processes) + " processes are not a multiple of the processes per host: " +
                   shown(name, per_host) + "; set the host of each rank: MAESTRO_HOSTS=0,0,1");
  }
  std::vector<std::uint32_t> hosts;
  for (std::int64_t rank = 0; rank < processes; ++rank) hosts.push_back(static_cast<std::uint32_t>(rank / per_host));
  return hosts;
}

std::optional<std::uint16_t> given_port(const Variables& variables) {
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  return port ? std::optional(static_cast<std::uint16_t>(*port)) : std::nullopt;
}

/// Returns 61440 + hash % 4096, with FNV-1a of the job's name as the hash. See find_process_place.
std::uint16_t port_of(std::string_view job) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<std::uint16_t>(first_job_port + hash % job_ports);
}

ProcessEnv maestro_place(const Variables& variables) {
  ProcessEnv place;
  place.launcher = JobLauncher::maestro;
  place.joins = variables.text("MAESTRO_JOINS").value_or("");
  place.join_devices = variables.text("MAESTRO_JOIN_DEVICES").value_or("");
  read_rank(variables, "MAESTRO_RANK", "MAESTRO_PROCESSES", place);
  if (place.processes == 1) return place;
  auto hosts = given_hosts(variables, place.processes);
  if (hosts.empty()) hosts.assign(static_cast<std::size_t>(place.processes), 0);
  set_hosts(place, std::move(hosts));
  check_local_rank(variables, "MAESTRO_LOCAL_RANK", place, "set MAESTRO_HOSTS, or leave MAESTRO_LOCAL_RANK out");
  place.root_host = variables.text("MAESTRO_ROOT_HOST", "MAESTRO_RANK");
  place.root_port = static_cast<std::uint16_t>(variables.number("MAESTRO_ROOT_PORT", 1, 65535, "MAESTRO_ROOT_HOST"));
  return place;
}

std::vector<std::uint32_t> torchrun_hosts(const Variables& variables, const ProcessEnv& place) {
  if (auto hosts = given_hosts(variables, place.processes); !hosts.empty()) return hosts;
  if (const auto per_host = variables.number("LOCAL_WORLD_SIZE", 1, place.processes)) {
    return even_hosts(place.processes, *per_host, "LOCAL_WORLD_SIZE");
  }
  if (is_loopback(place.root_host)) return std::vector<std::uint32_t>(static_cast<std::size_t>(place.processes), 0);
  throw JobError("LOCAL_WORLD_SIZE is not set, and rank 0 is at MASTER_ADDR = \"" + printable(place.root_host) +
                 "\": set it to the number of processes on each host");
}

ProcessEnv torchrun_place(const Variables& variables) {
  ProcessEnv place;
  place.launcher = JobLauncher::torchrun;
  read_rank(variables, "RANK", "WORLD_SIZE", place);
  if (place.processes == 1) return place;
  place.root_host = variables.text("MASTER_ADDR", "RANK");
  set_hosts(place, torchrun_hosts(variables, place));
  check_local_rank(variables, "LOCAL_RANK", place, "set the host of each rank: MAESTRO_HOSTS=0,0,1");
  place.root_port = static_cast<std::uint16_t>(variables.number("MASTER_PORT", 1, 65535, "MASTER_ADDR"));
  // torchrun's agent serves a store at MASTER_PORT (torch/distributed/elastic, TORCHELASTIC_USE_AGENT_STORE).
  if (!variables.has("TORCHELASTIC_RUN_ID")) return place;
  place.root_port = place.root_port == 65535 ? 65534 : static_cast<std::uint16_t>(place.root_port + 1);
  return place;
}

/// Returns the host of mpirun: "979828736.0;tcp://192.0.2.2,10.0.0.2:57553;tcp6://..." -> "192.0.2.2".
/// PMIX_SERVER_URI* of Open MPI 5 does not replace the variable: it names the daemon of each host.
std::string open_mpi_root(const Variables& variables) {
  constexpr std::string_view scheme = "tcp://";
  const std::string uri = variables.text("OMPI_MCA_orte_hnp_uri").value_or("");
  if (const std::size_t at = uri.find(scheme); at != std::string::npos) {
    const std::string rest = uri.substr(at + scheme.size());
    if (const std::size_t end = rest.find_first_of(",:"); end > 0 && end != std::string::npos) {
      return rest.substr(0, end);
    }
  }
  throw JobError("Open MPI does not report the host of rank 0; name it: mpirun -x MASTER_ADDR=HOST");
}

ProcessEnv open_mpi_place(const Variables& variables) {
  ProcessEnv place;
  place.launcher = JobLauncher::open_mpi;
  read_rank(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", place);
  if (place.processes == 1) return place;
  auto hosts = given_hosts(variables, place.processes);
  if (hosts.empty()) {
    const std::string_view local_size = "OMPI_COMM_WORLD_LOCAL_SIZE";
    const auto per_host = variables.number(local_size, 1, place.processes, "OMPI_COMM_WORLD_RANK");
    hosts = even_hosts(place.processes, per_host, local_size);
  }
  set_hosts(place, std::move(hosts));
  check_local_rank(variables, "OMPI_COMM_WORLD_LOCAL_RANK", place, "start with mpirun --map-by slot --rank-by slot");
  const auto root = variables.text("MASTER_ADDR");
  if (root || place.hosts.back() != 0) place.root_host = root ? *root : open_mpi_root(variables);
  const auto port = given_port(variables);
  place.root_port = port ? *port : port_of(variables.text("PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"));
  return place;
}

/// Returns the ranks of this host in the form of SLURM_GTIDS: "2,3".
std::string local_ranks(const ProcessEnv& place) {
  std::string ranks;
  for (std::int64_t at = 0; at < place.local_processes; ++at) {
    ranks += (at == 0 ? "" : ",") + std::to_string(place.rank - place.local_rank + at);
  }
  return ranks;
}

/// Throws if `srun` has not distributed a step's tasks in blocks.
void check_blocks(const Variables& variables, const ProcessEnv& place) {
  const std::string remedy = "start with srun --distribution=block";
  check_local_rank(variables, "SLURM_LOCALID", place, remedy);
  const std::int64_t host = place.hosts[static_cast<std::size_t>(place.rank)];
  const auto node = variables.number("SLURM_NODEID", 0, most_processes);
  const std::string ranks = variables.text("SLURM_GTIDS").value_or(local_ranks(place));
  if (node.value_or(host) == host && ranks == local_ranks(place)) return;
  throw JobError("node " + std::to_string(node.value_or(host)) + " of the SLURM step has ranks " + printable(ranks) +
                 ": ranks of a host must be consecutive; " + remedy);
}

[[noreturn]] void contradict(const std::string& tasks_per_node, std::int64_t processes) {
  throw JobError("SLURM_STEP_TASKS_PER_NODE = \"" + printable(tasks_per_node) + "\" contradicts " +
                 shown("SLURM_STEP_NUM_TASKS", processes));
}

std::vector<std::uint32_t> slurm_hosts(const Variables& variables, std::int64_t processes) {
  const std::string_view name = "SLURM_STEP_TASKS_PER_NODE";
  const std::string list = variables.text(name, "SLURM_STEP_ID");
  std::vector<std::uint32_t> hosts;
  std::uint32_t host = 0;
  for (const std::int64_t tasks : tasks_by_node(list, name)) {
    if (tasks > processes - std::ssize(hosts)) contradict(list, processes);
    hosts.insert(hosts.end(), static_cast<std::size_t>(tasks), host++);
  }
  if (std::ssize(hosts) < processes) contradict(list, processes);
  return hosts;
}

/// Returns the port for a job and step. JAX uses only the job id; a prime factor makes the steps of a job differ.
std::uint16_t slurm_port(const Variables& variables) {
  constexpr std::int64_t most_id = 0xffffffff;
  const auto job = variables.number("SLURM_JOB_ID", 0, most_id, "SLURM_STEP_ID");
  const auto step = variables.number("SLURM_STEP_ID", 0, most_id, "SLURM_JOB_ID");
  return static_cast<std::uint16_t>(first_job_port + (job + 1021 * step) % job_ports);
}

ProcessEnv slurm_place(const Variables& variables) {
  ProcessEnv place;
  place.launcher = JobLauncher::slurm;
  read_rank(variables, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", place);
  if (place.processes == 1) return place;
  set_hosts(place, slurm_hosts(variables, place.processes));
  check_blocks(variables, place);
  const auto root = variables.text("MASTER_ADDR");
  if (root) {
    place.root_host = *root;
  } else if (place.hosts.back() != 0) {
    const std::string_view list = "SLURM_STEP_NODELIST";
    place.root_host = first_host_of(variables.text(list, "SLURM_STEP_ID"), list);
  }
  const auto port = given_port(variables);
  place.root_port = port ? *port : slurm_port(variables);
  return place;
}

/// Returns the place by the innermost launcher. Outside a step, a SLURM batch script has SLURM_PROCID = 0 and
/// SLURM_NTASKS, but not SLURM_STEP_ID.
ProcessEnv launched_place(const Variables& variables) {
  if (variables.has("MAESTRO_RANK")) return maestro_place(variables);
  if (variables.has("RANK")) return torchrun_place(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK")) return open_mpi_place(variables);
  if (variables.has("SLURM_STEP_ID") && variables.has("SLURM_STEP_NUM_TASKS")) return slurm_place(variables);
  if (variables.has("MAESTRO_PROCESSES")) static_cast<void>(variables.text("MAESTRO_RANK", "MAESTRO_PROCESSES"));
  if (variables.number("WORLD_SIZE", 1, most_processes).value_or(1) > 1) {
    static_cast<void>(variables.text("RANK", "WORLD_SIZE"));
  }
  return {};
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* const value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

ProcessEnv find_process_place(const Environment& environment) {
  const Variables variables(environment);
  ProcessEnv place = launched_place(variables);
  if (place.processes == 1) place = {};
  place.token = variables.text("MAESTRO_TOKEN").value_or("");
  return place;
}

}  // namespace maestro
