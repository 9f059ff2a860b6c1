// SPDX-License-Identifier: Apache-2.0
#include "actors/process/job_start.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>

#include "actors/control/control_place.hpp"
#include "actors/job/preflight.hpp"
#include "actors/launch/listen_address.hpp"
#include "actors/rpc/runtime_folder.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/process_identity.hpp"
#include "runtime/core/result.hpp"
#include "transport/fabric/libfabric.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

bool loopback(const std::string& address) {
  return reach_of(address) == Reach::same_host;
}

bool is_here(const std::string& host) {
  const std::string reached_from = address_towards(host);  // a machine reaches its own addresses from themselves
  return loopback(reached_from) || reached_from == address_of(host);
}

/// Calls address_towards(), retried for some seconds: a link may be down for a moment.
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

/// The file by which the children of a rank 0 agree on the one that prints why the job cannot begin.
fs::path refusal_mark(std::int64_t parent) {
  return runtime_folder() / (std::to_string(parent) + ".refused");
}

}  // namespace

RendezvousInfo new_rendezvous_info() {
  RendezvousInfo info;
  std::uint32_t epoch = 0;
  while (epoch == 0) {
    if (getrandom(&epoch, sizeof epoch, 0) != static_cast<ssize_t>(sizeof epoch)) epoch = 0;
  }
  info.epoch = Epoch(epoch);
  info.secret = random_token();
  return info;
}

JobStart::JobStart(JobStartOptions options, Console& console) : options_(std::move(options)), console_(console) {
  keep_signal_handlers();
  sweep_runtime_folder();
  sweep_run_keys();
  std::error_code absent;
  if (options_.run.starts_others()) fs::remove(refusal_mark(getpid()), absent);  // of an earlier process of this number
  if (!options_.run.host_names.empty()) check_first_host();
  choose_listen_address();
  if (several_hosts()) {
    const char* given = std::getenv("MAESTRO_HOST_NAME");
    host_ = given != nullptr ? given : options_.run.host_names.empty() ? host_name() : options_.run.host_names.front();
  }
  if (!loopback(listen_)) find_keys();
  watch_parent();
}

JobStart::~JobStart() {
  parent_watch_.reset();
  server_.reset();
  tidy();
}

void JobStart::begin_again(std::vector<std::string> command, std::set<ProcessId> running) {
  {
    const std::lock_guard lock(mutex_);
    options_.command = std::move(command);
    survivors_ = std::move(running);
    child_printed_ = false;
    server_.reset();
    joined_.clear();
    starting_.reset();
    stopped_starting_ = false;
    unrouted_.clear();
    std::erase_if(stopped_, [&](const auto& stopped) { return !survivors_.contains(stopped.first); });
    for (auto& [process, stopped_for] : stopped_) stopped_for = {};
    survivors_awaited_ = {};
  }
  watch_parent();
}

void JobStart::tidy_start() {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;  // a left-over empty file is harmless
  if (!shared_file_.empty()) fs::remove(shared_file_, ignored);
  shared_file_.clear();
}

void JobStart::tidy() {
  tidy_start();
  const std::lock_guard lock(mutex_);
  run_keys_.reset();
  std::error_code ignored;
  if (options_.run.starts_others()) fs::remove(refusal_mark(getpid()), ignored);
  if (parent_ > 0 && getppid() != parent_) remove_sockets_of(parent_);  // rank 0 has ended
}

/// Processes started by other programs have ends of their own.
void JobStart::watch_parent() {
  const char* parent = std::getenv("MAESTRO_PARENT");
  const char* secrets = std::getenv("MAESTRO_SECRETS");
  if (options_.run.place.launcher != JobLauncher::maestro || (parent == nullptr && secrets == nullptr)) return;
  parent_ = parent == nullptr ? 0 : std::atoll(parent);
  parent_watch_ = std::make_unique<ParentWatch>(
      parent_, STDIN_FILENO, [this](const std::string& how) { leave("rank 0 " + how + " before the job began"); });
}

bool JobStart::is_first_to_refuse() {
  const char* const parent = std::getenv("MAESTRO_PARENT");
  if (parent == nullptr) return true;
  const fs::path path = refusal_mark(std::atoll(parent));
  const FileDescriptor mark(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  return mark || errno != EEXIST;
}

bool JobStart::prints_refusals() const {
  if (child_printed_) return false;
  const ProcessEnv& place = options_.run.place;
  if (place.launcher != JobLauncher::maestro || !place.joins.empty()) return true;  // each process has its own log
  return place.local_rank == 0 && place.hosts[static_cast<std::size_t>(place.rank)] > 0;
}

void JobStart::leave(const std::string& line) {
  leaving_.lock();
  const ProcessEnv& place = options_.run.place;
  const auto first_of_host = [&] {
    const bool here = place.hosts[static_cast<std::size_t>(place.rank)] == 0;
    return place.local_rank == (here ? 1 : 0);
  };
  if (place.launcher != JobLauncher::maestro || !place.joins.empty() || first_of_host()) console_.error(line);
  tidy();
  (void)sweep_own_shared_memory();  // the next run sweeps the rest
  (void)sweep_shared_memory();      // of rank 0
  _exit(1);
}

std::string JobStart::own_name() const {
  return "process " + std::to_string(options_.run.place.rank) + (host_.empty() ? "" : " (host " + host_ + ")");
}

void JobStart::check_first_host() const {
  const std::string& first = options_.run.host_names.front();
  if (is_here(first)) return;
  throw JobError("--hosts: the first host must be this machine, where rank 0 coordinates the job, and \"" + first +
                     "\" is another host; start maestro there, or put " + host_name() + " first",
                 ErrorCode::invalid_argument);
}

void JobStart::choose_listen_address() {
  std::string wanted = options_.transport.listen;
  if (const char* preset = std::getenv("MAESTRO_LISTEN");
      preset != nullptr && options_.run.place.launcher == JobLauncher::maestro) {
    wanted = preset;
  }
  const bool ours = !options_.run.place.foreign();
  if (several_hosts() && !ours && loopback(wanted)) {
    throw JobError("the processes of this job are on several hosts, and maestro listens on " + wanted +
                   " only; give --listen auto (or an address), and --keys FOLDER as made by `maestro keys FOLDER`");
  }
  // Named hosts are meant to reach each other.
  if (wanted == "0.0.0.0" || (several_hosts() && loopback(wanted))) wanted = "auto";
  std::string towards = "127.0.0.1";
  if (wanted == "auto" && several_hosts()) {
    towards = address_found_towards(options_.run.host_names.empty() ? options_.run.place.root_host
                                                                    : options_.run.host_names.back());
  }
  listen_ = maestro::choose_listen_address(wanted, towards, interface_addresses());
}

void JobStart::find_keys() {
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

std::chrono::milliseconds JobStart::patience() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(options_.transport.start_timeout_s * 1000));
}

JoinRequest JobStart::own_request(const std::string& job) const {
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

std::string JobStart::server_address() const {
  const ProcessEnv& place = options_.run.place;
  if (place.launcher == JobLauncher::maestro && place.root_host.starts_with("unix:")) return place.root_host;
  if (!loopback(listen_)) {
    const std::int64_t port = place.launcher != JobLauncher::none ? place.root_port
                              : port_ > 0                         ? port_
                                                                  : options_.transport.port;
    return listen_ + ":" + std::to_string(port);
  }
  const std::string name =
      place.launcher == JobLauncher::none ? std::to_string(getpid()) : "port-" + std::to_string(place.root_port);
  return "unix:" + (runtime_folder() / (name + ".rendezvous")).string();
}

std::string JobStart::gate_host() const {
  if (!loopback(listen_)) return listen_;
  const std::string name = std::to_string(getpid()) + "-" + random_token().substr(0, 8) + ".peers";
  return "unix:" + (runtime_folder() / name).string();
}

std::string JobStart::write_shared_file(const fs::path& folder) {
  if (!several_hosts() || folder.empty()) return {};
  fs::create_directories(folder);
  shared_file_ = fs::absolute(folder) / (shared_file_prefix + random_token().substr(0, 16));
  std::ofstream file(shared_file_);
  if (!file) throw JobError("train.out: cannot write to \"" + folder.string() + "\"", ErrorCode::unavailable);
  return shared_file_.string();
}

void JobStart::check_shared_folder(const RendezvousInfo& info) const {
  if (info.shared_file.empty() || fs::exists(info.shared_file)) return;
  throw JobError(
      "train.out: rank 0's folder \"" + fs::path(info.shared_file).parent_path().string() +
          "\" is not visible on this host, so checkpoints would lack the sections trained here; choose a folder "
          "that all hosts share, or set " +
          "train.checkpoint_at_end = false, train.checkpoint_every = 0 and train.archive_every = 0",
      ErrorCode::unavailable);
}

RendezvousOptions JobStart::rendezvous_options(const JobText& job, const RendezvousInfo& info) const {
  RendezvousOptions options;
  options.address = server_address();
  options.keys = keys_;
  options.own = own_request(job.job);
  options.hosts = options_.run.place.hosts;
  options.accepted = {
      info.epoch.value(), info.root_address, info.root_port, host_,
      info.secret,        info.shared_file,  job.resume,     info.shared_memory != SharedMemoryUse::by_none};
  options.silence = job.silence;
  options.note = [this](const std::string& line) { console_.note(line); };
  return options;
}

RendezvousInfo JobStart::gather(Launcher& launcher, const JobText& job, const Publish& publish) {
  RendezvousInfo info = new_rendezvous_info();
  const bool chosen = !several_hosts() && options_.transport.port != 0;
  info.root_address = chosen ? listen_ : gate_host();
  info.shared_file = write_shared_file(job.shared_folder);
  if (!shared_memory_) shared_memory_ = decide_on_shared_memory(job.most_processes);
  info.shared_memory = *shared_memory_;
  info.root_port = publish(info, info.root_address, chosen ? options_.transport.port : 0);
  {
    const std::lock_guard lock(mutex_);
    gathering_ = true;
    server_ = std::make_unique<RendezvousServer>(rendezvous_options(job, info));
    port_ = place_of_server().root_port;
  }
  try {
    if (options_.run.starts_others()) start_missing(launcher, true);
    find_providers();
    server_->wait_all(patience(), [this, &job, &launcher] {
      look_at_stopped_children(job.silence);
      look_at_silent_survivors(job.silence);
      replace_survivors(launcher);
    });
    server_->stop();
    joined_ = server_->present();
    const std::lock_guard lock(mutex_);
    gathering_ = false;
    survivors_.clear();
  } catch (const JobError&) {
    server_->stop();
    launcher.wait(std::chrono::seconds(2));  // JS-3: they print the reason, and end
    throw;
  }
  return info;
}

SharedMemoryUse JobStart::decide_on_shared_memory(std::size_t processes) const {
  (void)sweep_shared_memory();  // of killed runs
  const auto room = shared_memory_room();
  const std::string missing = room ? missing_room(room_of_all(*room, processes)) : std::string();
  if (missing.empty()) return SharedMemoryUse::by_all;
  const std::string provider = provider_override().value_or(options_.transport.provider);
  if (provider == "auto" && loopback(listen_)) {
    console_.note("  note: " + missing + " for " + std::to_string(processes) +
                  " processes, so they use the network; mount it larger (docker run --shm-size)");
  }
  return SharedMemoryUse::by_none;
}

/// Has libfabric look for its providers while the other processes start, which takes 0.3 s; Endpoint::open() repeats it
/// at once.
void JobStart::find_providers() {
  TransportConfig transport = options_.transport;
  transport.listen = listen_;
  try {
    check_provider(transport, *shared_memory_);
  } catch (const JobError& problem) {
    if (!server_->fail(problem.what(), problem.code())) throw;  // all have joined meanwhile
  }
}

JoinOptions JobStart::join_options(const std::string& job) const {
  JoinOptions options;
  const std::string address = server_address();
  options.host = address.starts_with("unix:") ? address : options_.run.place.root_host;
  options.port = options_.run.place.root_port;
  options.keys = keys_;
  options.request = own_request(job);
  options.patience = patience();
  return options;
}

RendezvousInfo JobStart::join(const JobText& job) {
  if (parent_watch_) parent_watch_->set_silence(job.silence);
  JoinOptions options = join_options(job.job);
  options.silence = job.silence;
  const JoinAccepted accepted = maestro::join(options);
  RendezvousInfo info;
  info.epoch = Epoch(accepted.epoch);
  info.secret = accepted.secret;
  info.root_address = accepted.caf_host;
  info.root_port = accepted.caf_port;
  info.shared_file = accepted.shared_file;
  info.resume = accepted.resume;
  info.shared_memory = accepted.shared_memory ? SharedMemoryUse::by_all : SharedMemoryUse::by_none;
  return info;
}

void JobStart::withdraw(const std::string& reason) noexcept {
  constexpr std::chrono::seconds patience_for_others(5);
  const ProcessEnv& place = options_.run.place;
  if (!place.foreign()) return;  // rank 0 watches its children itself
  if (place.rank > 0) {
    JoinOptions options = join_options({});
    options.patience = patience_for_others;
    return join_to_withdraw(options, own_name() + ": " + reason);
  }
  try {
    RendezvousOptions options;
    options.address = server_address();
    options.keys = keys_;
    options.own = own_request({});
    options.hosts = place.hosts;
    RendezvousServer(std::move(options)).refuse_all(own_name() + ": " + reason, patience_for_others);
  } catch (const JobError&) {  // the caller reports the reason
  }
}

}  // namespace maestro
