// SPDX-License-Identifier: Apache-2.0
// The processes that rank 0 starts: at the start of the job, and again after a loss.
#include <unistd.h>

#include <algorithm>

#include "actors/launch/listen_address.hpp"
#include "actors/process/job_start.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

std::vector<ProcessStart> JobStart::starts(const ProcessEnv& place) const {
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

void JobStart::start_missing(Launcher& launcher) {
  ProcessEnv place = options_.run.place;
  const std::string address = server_->address();
  if (address.starts_with("unix:")) {
    place.root_host = address;
    place.root_port = 1;  // not used
  } else {
    const std::size_t colon = address.rfind(':');
    place.root_host = address.substr(0, colon);
    place.root_port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)));
  }
  RemoteShell shell;
  shell.words = remote_shell_words(options_.ssh);
  if (several_hosts()) shell.secrets = pack(*keys_);
  std::vector<ProcessStart> missing = starts(place);
  for (const JoinRequest& there : server_->present()) {
    std::erase_if(missing, [&](const ProcessStart& start) { return start.rank == there.rank; });
  }
  launcher.start(options_.command, missing, shell);
}

void JobStart::start_again(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process) {
  launcher.end(process, std::chrono::seconds(5));  // of the lost one, or of its remote shell
  RendezvousOptions options = rendezvous_options(job, info);
  options.present = joined_;
  std::erase_if(options.present, [&](const JoinRequest& there) {
    return there.rank == 0 || there.rank == static_cast<std::int64_t>(process.value());
  });
  {
    const std::lock_guard lock(mutex_);
    if (stopped_starting_) throw JobError("the run is over", ErrorCode::cancelled);
    server_.reset();  // its address is free
    server_ = std::make_unique<RendezvousServer>(std::move(options));
    starting_ = process;
    stopped_.erase(process);
  }
  try {
    start_missing(launcher);
    server_->wait_all(patience(), [this, &job] { look_at_stopped_children(job.silence); });
  } catch (const JobError&) {
    server_->stop();
    throw;
  }
  server_->stop();
}

void JobStart::started_again() {
  const std::lock_guard lock(mutex_);
  starting_.reset();
}

void JobStart::stop_starting() {
  const std::lock_guard lock(mutex_);
  stopped_starting_ = true;
  if (server_) server_->fail("the run is over", ErrorCode::cancelled);
}

void JobStart::child_ended(ProcessId process, const std::string& how) {
  const std::lock_guard lock(mutex_);
  const bool again = starting_ == process;
  if (route_ && again) server_->fail("it ended before it joined: " + how, ErrorCode::peer_lost);
  if (route_) return route_(process, how, again);
  if (!server_) return;
  const std::string where =
      several_hosts() ? " on host " + options_.run.host_names[options_.run.place.hosts[process.value()]] : "";
  const bool here = options_.run.place.hosts[process.value()] == 0;
  const bool refused =
      how.starts_with("exit status") && !how.starts_with("exit status 1");  // invalid input, also of ssh
  if (here && prints_itself(how)) child_printed_ = true;
  server_->fail("process " + std::to_string(process.value()) + where + " ended before the job began: " + how,
                child_printed_ ? ErrorCode::cancelled
                : refused      ? ErrorCode::invalid_argument
                               : ErrorCode::peer_lost);
}

void JobStart::child_stopped(ProcessId process, bool stopped) {
  const std::lock_guard lock(mutex_);
  if (stopped) {
    stopped_[process] = 0;
  } else {
    stopped_.erase(process);
  }
}

/// Runs four times a second; time in which this process itself was stopped, as by Ctrl-Z, does not count.
void JobStart::look_at_stopped_children(std::chrono::milliseconds silence) {
  const std::lock_guard lock(mutex_);
  for (auto& [process, looks] : stopped_) {
    if (++looks * 250 < silence.count()) continue;
    server_->fail("process " + std::to_string(process.value()) + " was stopped by a signal before the job began",
                  ErrorCode::peer_lost);
  }
}

void JobStart::route_child_ends(ChildEndRoute route) {
  const std::lock_guard lock(mutex_);
  route_ = std::move(route);
}

}  // namespace maestro
