#include "transport/shared_memory_sweep.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace maestro {
namespace {

constexpr std::string_view prefix = "maestro-";

struct Owner {
  std::uint64_t pid_namespace = 0;  // inode of /proc/<pid>/ns/pid
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks after boot; tells processes of one number apart
  std::uint64_t user = 0;

  friend bool operator==(const Owner&, const Owner&) = default;
};

struct ProcessStat {
  char state = 0;
  std::uint64_t started = 0;
};

// proc(5): "pid (name) state ..." with the start time as field 22; the name may hold anything, parentheses included.
std::optional<ProcessStat> read_stat(std::uint64_t pid) {
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

// A zombie has a number until its parent asks for its status, but maps nothing any more.
bool is_alive(const Owner& owner) {
  if (const auto stat = read_stat(owner.pid)) {
    return stat->started == owner.started && stat->state != 'Z' && stat->state != 'X';
  }
  return kill(static_cast<pid_t>(owner.pid), 0) == 0 || errno != ESRCH;  // without /proc: a number in use keeps all
}

Owner this_process() {
  Owner own;
  struct stat pid_namespace {};
  if (stat("/proc/self/ns/pid", &pid_namespace) == 0) own.pid_namespace = pid_namespace.st_ino;
  own.pid = static_cast<std::uint64_t>(getpid());
  if (const auto stat = read_stat(own.pid)) own.started = stat->started;
  own.user = getuid();
  return own;
}

// A number at the front of `text` with `separator` behind it; takes both off.
std::optional<std::uint64_t> take_number(std::string_view& text, char separator) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(separator)) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

// The process that made a segment of this name; nothing when it is not a name of ours.
std::optional<Owner> owner_of(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto pid_namespace = take_number(name, '-');
  const auto pid = pid_namespace ? take_number(name, '-') : std::nullopt;
  const auto started = pid ? take_number(name, '-') : std::nullopt;
  const auto serial = started ? take_number(name, ':') : std::nullopt;
  const auto user = serial ? take_number(name, ':') : std::nullopt;
  if (!user || name.find_first_not_of("0123456789_") != std::string_view::npos) return std::nullopt;
  return Owner{*pid_namespace, *pid, *started, *user};
}

Result<std::vector<std::string>> sweep(const std::string& folder, const std::function<bool(const Owner&)>& may_go) {
  std::error_code error;
  std::vector<std::string> removed;
  std::string kept;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const auto name = entries->path().filename().string();
    const auto owner = owner_of(name);
    if (!owner || !may_go(*owner)) continue;
    std::error_code failure;
    if (std::filesystem::remove(entries->path(), failure)) removed.push_back(name);
    if (failure) kept = name + " (" + failure.message() + ")";
  }
  if (error) return Error{ErrorCode::unavailable, "cannot look through " + folder + ": " + error.message()};
  if (!kept.empty())
    return Error{ErrorCode::unavailable, "cannot remove " + folder + "/" + kept + "; remove it by hand"};
  std::sort(removed.begin(), removed.end());
  return removed;
}

}  // namespace

std::string new_shared_memory_name() {
  static std::atomic<std::uint64_t> made{0};
  const Owner own = this_process();
  return std::string(prefix) + std::to_string(own.pid_namespace) + '-' + std::to_string(own.pid) + '-' +
         std::to_string(own.started) + '-' + std::to_string(made.fetch_add(1));
}

Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder) {
  const Owner own = this_process();
  return sweep(folder, [&own](const Owner& owner) {
    return owner.pid_namespace == own.pid_namespace && owner.user == own.user && !is_alive(owner);
  });
}

Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder) {
  const Owner own = this_process();
  return sweep(folder, [&own](const Owner& owner) { return owner == own; });
}

}  // namespace maestro
