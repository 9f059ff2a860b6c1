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
#include "actors/process/emergency_exit.hpp"
#include "actors/rpc/runtime_folder.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/process_identity.hpp"
#include "runtime/core/result.hpp"
#include "transport/fabric/libfabric.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

/// Returns the file that decides which of rank 0's children prints why the job cannot begin.
fs::path refusal_mark(std::int64_t parent) {
  return runtime_folder() / (std::to_string(parent) + ".refused");
}

/// Removes the files of dead processes before this process creates files. Returns `options`.
JobStartOptions after_sweep(JobStartOptions options) {
  keep_signal_handlers();
  sweep_runtime_folder();
  sweep_run_keys();
  std::error_code absent;
  if (options.run.starts_others()) fs::remove(refusal_mark(getpid()), absent);  // an earlier process had the same pid
  return options;
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

JobStart::JobStart(JobStartOptions options, Console& console)
    : access_(after_sweep(std::move(options))), console_(console) {
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
    access_.set_command(std::move(command));
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
  std::error_code ignored;  // an empty file that remains is harmless
  if (!shared_file_.empty()) fs::remove(shared_file_, ignored);
  shared_file_.clear();
}

void JobStart::tidy() {
  tidy_start();
  const std::lock_guard lock(mutex_);
  access_.drop_generated_keys();
  std::error_code ignored;
  if (access_.options().run.starts_others()) fs::remove(refusal_mark(getpid()), ignored);
  if (parent_ > 0 && getppid() != parent_) remove_sockets_of(parent_);  // rank 0 has ended
}

/// Watches rank 0, unless another program has started this process and ends it.
void JobStart::watch_parent() {
  const char* parent = std::getenv("MAESTRO_PARENT");
  const char* secrets = std::getenv("MAESTRO_SECRETS");
  if (access_.place().launcher != JobLauncher::maestro || (parent == nullptr && secrets == nullptr)) return;
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
  const ProcessEnv& place = access_.place();
  if (place.launcher != JobLauncher::maestro || !place.joins.empty()) return true;  // each process has a separate log
  return place.local_rank == 0 && place.hosts[static_cast<std::size_t>(place.rank)] > 0;
}

void JobStart::leave(const std::string& line) {
  if (leaving_.exchange(true)) await_exit();
  const ProcessEnv& place = access_.place();
  const auto first_of_host = [&] {
    const bool here = place.hosts[static_cast<std::size_t>(place.rank)] == 0;
    return place.local_rank == (here ? 1 : 0);
  };
  if (place.launcher != JobLauncher::maestro || !place.joins.empty() || first_of_host()) console_.error(line);
  tidy();
  (void)sweep_own_shared_memory();  // the next run sweeps the rest
  (void)sweep_shared_memory();      // rank 0's segments
  _exit(1);
}

std::string JobStart::write_shared_file(const fs::path& folder) {
  if (!access_.several_hosts() || folder.empty()) return {};
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
  options.address = access_.server_address(port_);
  options.keys = access_.keys();
  options.own = access_.own_request(job.job);
  options.hosts = access_.place().hosts;
  options.accepted = {
      info.epoch.value(), info.root_address, info.root_port, access_.host(),
      info.secret,        info.shared_file,  job.resume,     info.shared_memory != SharedMemoryUse::by_none};
  options.silence = job.silence;
  options.note = [this](const std::string& line) { console_.note(line); };
  return options;
}

RendezvousInfo JobStart::gather(Launcher& launcher, const JobText& job, const Publish& publish) {
  RendezvousInfo info = new_rendezvous_info();
  const bool chosen = !access_.several_hosts() && access_.options().transport.port != 0;
  info.root_address = chosen ? access_.listen() : access_.gate_host();
  info.shared_file = write_shared_file(job.shared_folder);
  if (!shared_memory_) shared_memory_ = decide_on_shared_memory(job.most_processes);
  info.shared_memory = *shared_memory_;
  info.root_port = publish(info, info.root_address, chosen ? access_.options().transport.port : 0);
  auto server = std::make_unique<RendezvousServer>(rendezvous_options(job, info));
  {
    const std::lock_guard lock(mutex_);
    gathering_ = true;
    server_ = std::move(server);
    port_ = place_of_server().root_port;
  }
  try {
    if (access_.options().run.starts_others()) start_missing(launcher, true);
    find_providers();
    server_->wait_all(access_.patience(), [this, &job, &launcher] {
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
    launcher.wait(std::chrono::seconds(2));  // JS-3: the children print the reason and end
    throw;
  }
  return info;
}

SharedMemoryUse JobStart::decide_on_shared_memory(std::size_t processes) const {
  (void)sweep_shared_memory();  // segments of killed runs
  const auto room = shared_memory_room();
  const std::string missing = room ? missing_room(room_of_all(*room, processes)) : std::string();
  if (missing.empty()) return SharedMemoryUse::by_all;
  const std::string provider = provider_override().value_or(access_.options().transport.provider);
  if (provider == "auto" && access_.on_loopback()) {
    console_.note("  note: " + missing + " for " + std::to_string(processes) +
                  " processes, so they use the network; mount it larger (docker run --shm-size)");
  }
  return SharedMemoryUse::by_none;
}

/// Makes libfabric look for its providers while the other processes start. This takes 0.3 s; Endpoint::open() can then
/// repeat it without a delay.
void JobStart::find_providers() {
  TransportConfig transport = access_.options().transport;
  transport.listen = access_.listen();
  try {
    check_provider(transport, *shared_memory_);
  } catch (const JobError& problem) {
    if (!server_->fail(problem.what(), problem.code())) throw;  // all processes have joined meanwhile
  }
}

RendezvousInfo JobStart::join(const JobText& job) {
  if (parent_watch_) parent_watch_->set_silence(job.silence);
  JoinOptions options = access_.join_options(job.job);
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
  const ProcessEnv& place = access_.place();
  if (!place.foreign()) return;  // rank 0 watches its children itself
  if (place.rank > 0) {
    JoinOptions options = access_.join_options({});
    options.patience = patience_for_others;
    return join_to_withdraw(options, access_.own_name() + ": " + reason);
  }
  try {
    RendezvousOptions options;
    options.address = access_.server_address(port_);
    options.keys = access_.keys();
    options.own = access_.own_request({});
    options.hosts = place.hosts;
    RendezvousServer(std::move(options)).refuse_all(access_.own_name() + ": " + reason, patience_for_others);
  } catch (const JobError&) {  // the caller reports the reason
  }
}

}  // namespace maestro
