// SPDX-License-Identifier: Apache-2.0
#include "actors/process/job_access.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "actors/launch/listen_address.hpp"
#include "actors/rpc/runtime_folder.hpp"
#include "runtime/core/process_identity.hpp"
#include "runtime/core/result.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

bool loopback(const std::string& address) {
  return reach_of(address) == Reach::same_host;
}

bool is_here(const std::string& host) {
  const std::string reached_from = address_towards(host);  // equal to the host's address if it is this machine
  return loopback(reached_from) || reached_from == address_of(host);
}

/// Calls address_towards() repeatedly for some seconds, as a link may be down for a moment.
std::string address_found_towards(const std::string& host) {
  constexpr std::chrono::seconds patience(5);
  constexpr std::chrono::milliseconds pause(100);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    try {
      return address_towards(host);
    } catch (const JobError& problem) {
      if (problem.code() != ErrorCode::unavailable || std::chrono::steady_clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

JobAccess::JobAccess(JobStartOptions options) : options_(std::move(options)) {
  if (!options_.run.host_names.empty()) check_first_host();
  choose_listen_address();
  if (several_hosts()) {
    const char* given = std::getenv("MAESTRO_HOST_NAME");
    host_ = given != nullptr ? given : options_.run.host_names.empty() ? host_name() : options_.run.host_names.front();
  }
  if (!on_loopback()) find_keys();
}

bool JobAccess::on_loopback() const {
  return loopback(listen_);
}

std::string JobAccess::own_name() const {
  return "process " + std::to_string(options_.run.place.rank) + (host_.empty() ? "" : " (host " + host_ + ")");
}

std::string JobAccess::gate_host() const {
  if (!loopback(listen_)) return listen_;
  const std::string name = std::to_string(getpid()) + "-" + random_token().substr(0, 8) + ".peers";
  return "unix:" + (runtime_folder() / name).string();
}

std::string JobAccess::server_address(std::int64_t earlier_port) const {
  const ProcessEnv& place = options_.run.place;
  if (place.launcher == JobLauncher::maestro && place.root_host.starts_with("unix:")) return place.root_host;
  if (!loopback(listen_)) {
    const std::int64_t port = place.launcher != JobLauncher::none ? place.root_port
                              : earlier_port > 0                  ? earlier_port
                                                                  : options_.transport.port;
    return listen_ + ":" + std::to_string(port);
  }
  const std::string name =
      place.launcher == JobLauncher::none ? std::to_string(getpid()) : "port-" + std::to_string(place.root_port);
  return "unix:" + (runtime_folder() / (name + ".rendezvous")).string();
}

JoinRequest JobAccess::own_request(const std::string& job) const {
  JoinRequest request;
  request.rank = options_.run.place.rank;
  request.processes = options_.run.place.processes;
  request.pid = getpid();
  request.host = host_.empty() ? host_name() : host_;
  request.local_rank = options_.run.place.local_rank;
  request.version = MAESTRO_VERSION;
  request.token = !options_.run.place.token.empty() ? options_.run.place.token : keys_ ? keys_->token : "";
  request.job = job;
  return request;
}

std::chrono::milliseconds JobAccess::patience() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(options_.transport.start_timeout_s * 1000));
}

void JobAccess::check_first_host() const {
  const std::string& first = options_.run.host_names.front();
  if (is_here(first)) return;
  throw JobError("--hosts: the first host must be this machine, where rank 0 coordinates the job, and \"" + first +
                     "\" is another host; start maestro there, or put " + host_name() + " first",
                 ErrorCode::invalid_argument);
}

void JobAccess::choose_listen_address() {
  std::string wanted = options_.transport.listen;
  if (const char* preset = std::getenv("MAESTRO_LISTEN");
      preset != nullptr && options_.run.place.launcher == JobLauncher::maestro) {
    wanted = preset;
  }
  const bool ours = !options_.run.place.foreign();
  if (several_hosts() && !ours && loopback(wanted)) {
    throw JobError("the processes of this job are on several hosts, but maestro listens only on " + wanted +
                   "; give --listen auto (or an address), and --keys FOLDER as made by `maestro keys FOLDER`");
  }
  // If the job names several hosts, loopback would not connect them.
  if (wanted == "0.0.0.0" || (several_hosts() && loopback(wanted))) wanted = "auto";
  std::string towards = "127.0.0.1";
  if (wanted == "auto" && several_hosts()) {
    towards = address_found_towards(options_.run.host_names.empty() ? options_.run.place.root_host
                                                                    : options_.run.host_names.back());
  }
  listen_ = maestro::choose_listen_address(wanted, towards, interface_addresses());
}

void JobAccess::find_keys() {
  const char* secrets = std::getenv("MAESTRO_SECRETS");
  const char* folder = std::getenv("MAESTRO_KEYS");
  if (secrets != nullptr && std::string(secrets) == "stdin") {
    run_keys_.emplace(RunKeys::unpack(read_secret_line()));
    keys_ = std::make_shared<const KeySet>(run_keys_->keys());
  } else if (!options_.transport.keys.empty()) {
    keys_ = std::make_shared<const KeySet>(load_key_set(options_.transport.keys));
  } else if (folder != nullptr && options_.run.place.launcher == JobLauncher::maestro) {
    keys_ = std::make_shared<const KeySet>(load_key_set(folder));
  } else if (options_.run.starts_others()) {
    run_keys_.emplace(RunKeys::make(options_.run.host_names));
    keys_ = std::make_shared<const KeySet>(run_keys_->keys());
  } else {
    throw JobError("transport.listen = \"" + listen_ +
                   "\" can be reached from other hosts: connections need certificates; make them with `maestro keys "
                   "FOLDER`, and give --keys FOLDER on every host");
  }
}

JoinOptions JobAccess::join_options(const std::string& job) const {
  JoinOptions options;
  const std::string address = server_address(0);
  options.host = address.starts_with("unix:") ? address : place().root_host;
  options.port = place().root_port;
  options.keys = keys_;
  options.request = own_request(job);
  options.patience = patience();
  return options;
}

std::vector<ProcessStart> JobAccess::starts(const ProcessEnv& place) const {
  const std::vector<InterfaceAddress> here = interface_addresses();
  const std::string& wanted = options_.transport.listen;
  const bool interface = std::ranges::find(here, wanted, &InterfaceAddress::interface) != here.end();
  std::vector<ProcessStart> starts;
  for (std::int64_t rank = 1; rank < place.processes; ++rank) {
    ProcessStart start;
    start.rank = rank;
    start.variables = place_variables(place, rank);
    const std::uint32_t host = place.hosts[static_cast<std::size_t>(rank)];
    if (host == 0) start.variables.push_back("MAESTRO_PARENT=" + std::to_string(getpid()));
    if (!options_.run.host_names.empty())
      start.variables.push_back("MAESTRO_HOST_NAME=" + options_.run.host_names[host]);
    if (host > 0) {
      start.host = options_.run.host_names[host];
      start.variables.emplace_back("MAESTRO_SECRETS=stdin");
      start.variables.push_back("MAESTRO_LISTEN=" + (interface ? wanted : "auto"));
    } else {
      start.variables.push_back("MAESTRO_LISTEN=" + listen_);
      if (keys_) start.variables.push_back("MAESTRO_KEYS=" + keys_->folder.string());
      if (!place.token.empty()) start.variables.push_back("MAESTRO_TOKEN=" + place.token);
    }
    starts.push_back(std::move(start));
  }
  return starts;
}

}  // namespace maestro
