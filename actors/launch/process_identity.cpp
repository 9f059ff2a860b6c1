#include "actors/launch/process_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <sstream>

namespace maestro {

namespace {

struct ProcessStat {
  char state = 0;
  std::string started;  // clock ticks after boot
};

// proc(5): "pid (name) state ..." with the start time as field 22; the name may hold anything, parentheses included.
std::optional<ProcessStat> read_stat(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
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

std::string pid_namespace() {
  struct stat found {};
  return stat("/proc/self/ns/pid", &found) == 0 ? std::to_string(found.st_ino) : "0";
}

}  // namespace

std::string process_identity() {
  const std::string pid = std::to_string(getpid());
  const auto stat = read_stat(pid);
  return boot() + "-" + pid_namespace() + "-" + pid + "-" + (stat ? stat->started : "0");
}

bool is_of_dead_process(std::string_view text) {
  std::istringstream parts{std::string(text)};
  std::array<std::string, 4> part;
  for (std::string& each : part) {
    if (!std::getline(parts, each, '-') || each.empty()) return false;
  }
  const auto& [of_boot, of_namespace, pid, started] = part;
  if (of_boot != boot() || of_namespace != pid_namespace()) return false;
  if (pid.find_first_not_of("0123456789") != std::string::npos || !read_stat("self")) return false;
  const auto now = read_stat(pid);
  return !now || now->started != started || now->state == 'Z' || now->state == 'X';
}

bool is_stopped(std::int64_t pid) {
  const auto stat = read_stat(std::to_string(pid));
  return stat && (stat->state == 'T' || stat->state == 't');
}

}  // namespace maestro
