#include "transport/shared_memory_sweep.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>

namespace maestro {
namespace {

// A zombie has a number until its parent asks for its status, but maps nothing any more.
bool is_zombie(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto name_end = line.rfind(')');  // the name before it may hold anything
  return name_end != std::string::npos &&
         (line.compare(name_end, 3, ") Z") == 0 || line.compare(name_end, 3, ") X") == 0);
}

bool is_alive(pid_t pid) {
  return (kill(pid, 0) == 0 || errno != ESRCH) && !is_zombie(pid);
}

// "<digits>:" at the front of `text`; takes it off.
std::optional<long> take_number(std::string_view& text, bool with_colon) {
  long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!with_colon) return number;
  if (!text.starts_with(':')) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

// The process that made a segment of this name; nothing when it is not one of libfabric's.
std::optional<pid_t> owner_of(std::string_view name) {
  const auto pid = take_number(name, true);
  const auto domain = pid ? take_number(name, true) : std::nullopt;
  const auto endpoint = domain ? take_number(name, false) : std::nullopt;
  // Without cross-memory attach large messages get segments of their own, "<pid>:<n>:<n>_<message>".
  if (!endpoint || !(name.empty() || name.front() == '_')) return std::nullopt;
  return static_cast<pid_t>(*pid);
}

Result<std::vector<std::string>> sweep(const std::string& folder, const std::function<bool(pid_t)>& may_go) {
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

Result<std::vector<std::string>> sweep_shared_memory(std::span<const pid_t> dead, const std::string& folder) {
  return sweep(folder, [dead](pid_t owner) {
    return std::find(dead.begin(), dead.end(), owner) != dead.end() && !is_alive(owner);
  });
}

Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder) {
  return sweep(folder, [](pid_t owner) { return owner == getpid(); });
}

}  // namespace maestro
