// SPDX-License-Identifier: Apache-2.0
// The processes that rank 0 starts: at the start of the job, and as replacements after a loss.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "actors/process/job_start.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {
constexpr std::chrono::milliseconds look_interval(250);  // interval of RendezvousServer::wait_all()
}

/// Returns the place of rank 0 with the address of its rendezvous.
ProcessEnv JobStart::place_of_server() const {
  ProcessEnv place = access_.place();
  const std::string address = server_->address();
  if (address.starts_with("unix:")) {
    place.root_host = address;
    place.root_port = 1;  // not used
  } else {
    const std::size_t colon = address.rfind(':');
    place.root_host = address.substr(0, colon);
    place.root_port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)));
  }
  return place;
}

void JobStart::start_missing(Launcher& launcher, bool counts) {
  RemoteShell shell;
  shell.words = remote_shell_words(access_.options().ssh);
  if (access_.several_hosts()) shell.secrets = pack(*access_.keys());
  std::vector<ProcessStart> missing = access_.starts(place_of_server());
  std::set<std::int64_t> there;
  for (const JoinRequest& present : server_->present()) there.insert(present.rank);
  for (const ProcessId running : launcher.running()) there.insert(running.value());
  std::erase_if(missing, [&](const ProcessStart& start) { return there.contains(start.rank); });
  for (const ProcessStart& start : missing) {
    const ProcessId process(static_cast<std::uint32_t>(start.rank));
    if (counts) launcher.rely_on(process);
    const std::lock_guard lock(mutex_);
    if (survivors_.erase(process) > 0) std::erase_if(unrouted_, [&](const auto& end) { return end.first == process; });
  }
  launcher.start(access_.options().command, missing, shell);
}

void JobStart::replace_survivors(Launcher& launcher) {
  std::set<ProcessId> there = launcher.running();
  for (const JoinRequest& joined : server_->present()) there.insert(ProcessId(static_cast<std::uint32_t>(joined.rank)));
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::includes(there, survivors_)) return;
  }
  start_missing(launcher, true);
}

void JobStart::expect(const JobText& job, const RendezvousInfo& info, ProcessId process) {
  RendezvousOptions options = rendezvous_options(job, info);
  const auto rank = static_cast<std::int64_t>(process.value());
  options.hosts.resize(std::max(options.hosts.size(), std::size_t{process.value()} + 1), options.hosts.back());
  options.present.assign(options.hosts.size(), options.own);
  for (std::size_t at = 0; at < options.present.size(); ++at) options.present[at].rank = static_cast<std::int64_t>(at);
  for (const JoinRequest& there : joined_) options.present.at(static_cast<std::size_t>(there.rank)) = there;
  std::erase_if(options.present, [&](const JoinRequest& there) { return there.rank == 0 || there.rank == rank; });
  std::unique_ptr<RendezvousServer> earlier;
  {
    const std::lock_guard lock(mutex_);
    earlier = std::move(server_);
  }
  earlier.reset();  // frees its address
  auto server = std::make_unique<RendezvousServer>(std::move(options));
  const std::lock_guard lock(mutex_);  // supervisor handlers lock it, so nothing is opened or joined under it
  if (stopped_starting_) throw JobError("the run is over", ErrorCode::cancelled);
  server_ = std::move(server);
  starting_ = process;
  stopped_.erase(process);
}

void JobStart::start_again(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process) {
  launcher.end(process, std::chrono::seconds(5));  // ends the lost process or its remote shell
  expect(job, info, process);
  await_joining(job, [&] { start_missing(launcher, false); });
}

void JobStart::await_joining(const JobText& job, const std::function<void()>& start) {
  try {
    if (start) start();
    server_->wait_all(access_.patience(), [this, &job] { look_at_stopped_children(job.silence); });
  } catch (const JobError&) {
    server_->stop();
    throw;
  }
  server_->stop();
}

JoinTerms JobStart::open_door(const JobText& job, const RendezvousInfo& info, ProcessId process,
                              const ElasticJoin& request) {
  if (!request.on_this_host && !access_.several_hosts()) {
    throw JobError("the run uses only the host of rank 0; call `maestro join` there");
  }
  if (!request.on_this_host && access_.generated_keys()) {
    throw JobError("the keys were generated for this run; start it with --keys FOLDER so that other hosts can join");
  }
  expect(job, info, process);
  ProcessEnv place = place_of_server();
  place.joins = request.section;
  place.join_devices = request.devices;
  JoinTerms terms{process, access_.options().command, place_variables(place, process.value()),
                  fs::current_path().string()};
  if (access_.several_hosts()) terms.variables.push_back("MAESTRO_HOST_NAME=" + request.host);
  terms.variables.push_back("MAESTRO_LISTEN=" + (request.on_this_host ? access_.listen() : "auto"));
  if (request.on_this_host && access_.keys())
    terms.variables.push_back("MAESTRO_KEYS=" + access_.keys()->folder.string());
  if (request.on_this_host && !place.token.empty()) terms.variables.push_back("MAESTRO_TOKEN=" + place.token);
  return terms;
}

void JobStart::start_new(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process,
                         const std::string& section) {
  launcher.end(process, std::chrono::seconds(5));  // an earlier process that has left may still end
  ProcessStart start;
  start.rank = process.value();
  start.variables = open_door(job, info, process, {section, {}, access_.host(), true}).variables;
  start.variables.push_back("MAESTRO_PARENT=" + std::to_string(getpid()));
  await_joining(job, [&] { launcher.start(access_.options().command, {start}, {}); });
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
  stopped_.erase(process);
  if (survivors_.contains(process)) {  // replace_survivors() starts it again, unless it has joined
    unrouted_.emplace_back(process, how);
    return;
  }
  const bool again = starting_ == process;
  if (route_ && again && server_) server_->fail("it ended before it joined: " + how, ErrorCode::peer_lost);
  if (route_ && !gathering_) return route_(process, how, again);
  if (!server_) return;
  const std::vector<std::uint32_t>& hosts = access_.place().hosts;
  // A process that joined later is on this host.
  const std::uint32_t host = process.value() < hosts.size() ? hosts[process.value()] : 0;
  const std::string where = access_.several_hosts() ? " on host " + access_.options().run.host_names[host] : "";
  const bool here = host == 0;
  const bool refused =
      how.starts_with("exit status") && !how.starts_with("exit status 1");  // invalid input, for ssh too
  const bool printed = here && prints_itself(how);
  const ErrorCode code = printed ? ErrorCode::cancelled : refused ? ErrorCode::invalid_argument : ErrorCode::peer_lost;
  const std::string reason = "process " + std::to_string(process.value()) + where + " ended before the job began: ";
  // If another reason came first, the child has ended because of it, without printing.
  if (server_->fail(reason + how, code) && printed) child_printed_ = true;
  if (route_ && server_->missing_text().empty()) return route_(process, how, again);  // all processes have joined
  unrouted_.emplace_back(process, how);
}

void JobStart::child_stopped(ProcessId process, bool stopped) {
  const std::lock_guard lock(mutex_);
  if (stopped) {
    stopped_[process] = {};
  } else {
    stopped_.erase(process);
  }
}

std::optional<std::string> JobStart::stopped_child(std::chrono::milliseconds silence, std::chrono::milliseconds since) {
  const std::lock_guard lock(mutex_);
  for (auto& [process, stopped_for] : stopped_) {
    stopped_for += since;
    if (stopped_for < silence) continue;
    return "process " + std::to_string(process.value()) + " was stopped by a signal before the job began";
  }
  return std::nullopt;
}

/// Runs four times a second, like look_at_silent_survivors().
void JobStart::look_at_stopped_children(std::chrono::milliseconds silence) {
  const auto line = stopped_child(silence, look_interval);
  if (line) server_->fail(*line, ErrorCode::peer_lost);
}

void JobStart::look_at_silent_survivors(std::chrono::milliseconds silence) {
  constexpr std::chrono::seconds end_of_part(2);  // time limit for a process to end its part
  const std::vector<JoinRequest> joined = server_->present();
  const std::lock_guard lock(mutex_);
  survivors_awaited_ += look_interval;
  if (survivors_awaited_ < end_of_part + silence) return;
  for (const ProcessId survivor : survivors_) {
    const std::int64_t rank = survivor.value();
    if (std::ranges::find(joined, rank, &JoinRequest::rank) != joined.end()) continue;
    server_->fail("process " + std::to_string(rank) + " was silent for too long before the job began again",
                  ErrorCode::peer_lost);
  }
}

void JobStart::route_child_ends(ChildEndRoute route) {
  const std::lock_guard lock(mutex_);
  route_ = std::move(route);
  for (const auto& [process, how] : std::exchange(unrouted_, {})) {
    if (survivors_.contains(process)) {  // starts again (JS-5)
      unrouted_.emplace_back(process, how);
    } else if (route_) {
      route_(process, how, false);
    }
  }
}

}  // namespace maestro
