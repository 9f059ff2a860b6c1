// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/process_identity.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace maestro {

namespace {

struct ProcessStat {
  char state = 0;
  std::uint64_t started = 0;
};

// proc(5): "pid (name) state ..." with the start time as field 22; the name may hold anything, parentheses included.
std::optional<ProcessStat> read_stat(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.started;
  if (!fields) return std::nullopt;
  return stat;
}

std::string boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.substr(0, id.find('-'));
}

std::uint64_t own_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessIdentity identity_of(pid_t pid) {
  const auto stat = read_stat(pid);
  return {own_namespace(), pid, stat ? stat->started : 0};
}

ProcessIdentity own_identity() {
  return identity_of(getpid());
}

bool is_alive(const ProcessIdentity& process) {
  if (process.pid_namespace != own_namespace()) return false;
  // A zombie keeps its number until its parent reads its status.
  if (const auto stat = read_stat(process.pid)) {
    return stat->started == process.started && stat->state != 'Z' && stat->state != 'X';
  }
  return ::kill(static_cast<pid_t>(process.pid), 0) == 0 || errno != ESRCH;
}

std::string identity_text(const ProcessIdentity& process) {
  return boot() + "-" + std::to_string(process.pid_namespace) + "-" + std::to_string(process.pid) + "-" +
         std::to_string(process.started);
}

bool is_of_dead_process(std::string_view text) {
  std::istringstream parts{std::string(text)};
  std::string of_boot;
  ProcessIdentity process;
  char dash[2] = {};
  if (!std::getline(parts, of_boot, '-') || of_boot != boot() || !read_stat(getpid())) return false;
  parts >> process.pid_namespace >> dash[0] >> process.pid >> dash[1] >> process.started;
  if (!parts || dash[0] != '-' || dash[1] != '-' || process.pid_namespace != own_namespace()) return false;
  return !is_alive(process);
}

bool is_stopped(std::int64_t pid) {
  const auto stat = read_stat(pid);
  return stat && (stat->state == 'T' || stat->state == 't');
}

ProcessHandle::ProcessHandle(const ProcessIdentity& process) {
  if (process.pid <= 0 || process.pid_namespace != own_namespace()) return;
  // By number: glibc 2.36 declares pidfd_open without C linkage.
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0U));
  if (descriptor < 0) return;
  descriptor_ = descriptor;
  // Read after the descriptor was opened: if the start time is correct now, the descriptor refers to that process.
  const auto stat = read_stat(process.pid);
  if (!stat || stat->started != process.started) *this = ProcessHandle(ProcessIdentity{});
}

ProcessHandle::~ProcessHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool ProcessHandle::kill() const {
  return descriptor_ >= 0 && syscall(SYS_pidfd_send_signal, descriptor_, SIGKILL, nullptr, 0U) == 0;
}

bool ProcessHandle::wait(std::chrono::steady_clock::time_point deadline) const {
  using std::chrono::milliseconds;
  if (descriptor_ < 0) return true;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd watched{descriptor_, POLLIN, 0};
    const int ready = poll(&watched, 1, static_cast<int>(std::max<milliseconds::rep>(left.count(), 0)));
    if (ready != -1 || errno != EINTR) return ready > 0;
  }
}

}  // namespace maestro
