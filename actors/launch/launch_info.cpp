// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/launch_info.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_processes_of_a_host = 64;

[[noreturn]] void refuse_host(std::string_view entry, const std::string& why) {
  throw JobError("--hosts: \"" + std::string(entry) + "\" " + why +
                 "; write host names with commas between them, with :N for N processes on one: a,b:2");
}

/// Parses an entry: "b:2" -> ("b", 2).
std::pair<std::string, std::int64_t> parse_host(std::string_view entry) {
  const std::size_t colon = entry.find(':');
  const std::string name(entry.substr(0, colon));
  if (name.empty() || name.find_first_of(" \t'\"/") != std::string::npos || name.front() == '-') {
    refuse_host(entry, "is not a host name");
  }
  if (colon == std::string_view::npos) return {name, 1};
  const std::string_view number = entry.substr(colon + 1);
  std::int64_t processes = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), processes);
  if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || processes < 1 ||
      processes > most_processes_of_a_host) {
    refuse_host(entry, "does not end in a number of processes from 1 to " + std::to_string(most_processes_of_a_host));
  }
  return {name, processes};
}

ProcessEnv own_place(const std::vector<std::uint32_t>& hosts) {
  ProcessEnv place;
  place.processes = std::ssize(hosts);
  place.local_processes = std::ranges::count(hosts, 0u);
  place.hosts = hosts;
  return place;
}

}  // namespace

HostList parse_hosts(std::string_view text) {
  HostList list;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto [name, processes] = parse_host(text.substr(0, comma));
    if (std::ranges::find(list.names, name) != list.names.end()) {
      refuse_host(name, "is named twice");
    }
    list.by_rank.insert(list.by_rank.end(), static_cast<std::size_t>(processes),
                        static_cast<std::uint32_t>(list.names.size()));
    list.names.push_back(name);
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

LaunchInfo find_run_place(const PlaceRequest& request, const Environment& environment) {
  LaunchInfo run;
  const ProcessEnv found = find_process_place(environment);
  const bool foreign = found.foreign();
  const std::string launcher(name_of(found.launcher));
  if (foreign && !request.joins) {
    throw JobError("started by " + launcher + " as one of " + std::to_string(found.processes) +
                   " processes, but only `maestro train` can run as several processes of a launcher");
  }
  if (foreign && (!request.hosts.empty() || (request.processes != 0 && request.processes != found.processes))) {
    throw JobError(std::string(request.hosts.empty() ? "--processes " + std::to_string(request.processes)
                                                     : "--hosts " + request.hosts) +
                   ": " + launcher + " has started " + std::to_string(found.processes) +
                   " processes of this job; leave the option out");
  }
  if (found.launcher != JobLauncher::none) {  // LI-1
    run.place = found;
    return run;
  }
  if (!request.hosts.empty() && request.processes != 0) {
    throw JobError("--processes and --hosts were both given; use --hosts a:2,b for two processes on a and one on b");
  }
  HostList hosts;
  hosts.by_rank.assign(static_cast<std::size_t>(std::max<std::int64_t>(request.processes, 1)), 0);
  if (!request.hosts.empty()) hosts = parse_hosts(request.hosts);
  run.place = own_place(hosts.by_rank);  // LI-2
  run.place.token = found.token;
  run.host_names = hosts.names;
  return run;
}

std::int64_t devices_of_host(const ProcessEnv& place, std::int64_t own_cores, std::int64_t cores) {
  const bool bound = place.foreign() && own_cores < cores;
  return bound ? std::min(cores, own_cores * place.local_processes) : own_cores;
}

std::vector<std::string> place_variables(const ProcessEnv& place, std::int64_t rank) {
  std::string hosts;
  for (const std::uint32_t host : place.hosts) hosts += (hosts.empty() ? "" : ",") + std::to_string(host);
  std::vector<std::string> variables = {"MAESTRO_RANK=" + std::to_string(rank),
                                        "MAESTRO_PROCESSES=" + std::to_string(place.processes),
                                        "MAESTRO_HOSTS=" + hosts, "MAESTRO_ROOT_HOST=" + place.root_host,
                                        "MAESTRO_ROOT_PORT=" + std::to_string(place.root_port)};
  if (!place.joins.empty()) {
    variables.insert(variables.end(), {"MAESTRO_JOINS=" + place.joins, "MAESTRO_JOIN_DEVICES=" + place.join_devices});
    return variables;
  }
  const auto at = static_cast<std::ptrdiff_t>(rank);
  const auto local_rank = std::count(place.hosts.begin(), place.hosts.begin() + at, place.hosts.at(at));
  variables.push_back("MAESTRO_LOCAL_RANK=" + std::to_string(local_rank));
  return variables;
}

}  // namespace maestro
