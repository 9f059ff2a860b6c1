// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/shared_memory_sweep.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>

#include "runtime/core/process_identity.hpp"

namespace maestro {
namespace {

constexpr std::string_view prefix = "maestro-";

struct Owner {
  ProcessIdentity process;
  std::uint64_t user = 0;

  friend bool operator==(const Owner&, const Owner&) = default;
};

Owner this_process() {
  return {own_identity(), getuid()};
}

// Takes a number and the `separator` that follows it off the front of `text`.
std::optional<std::uint64_t> take_number(std::string_view& text, char separator) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(separator)) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

// Returns the process that made a segment of this name; nothing for a foreign name.
std::optional<Owner> owner_of(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto pid_namespace = take_number(name, '-');
  const auto pid = pid_namespace ? take_number(name, '-') : std::nullopt;
  const auto started = pid ? take_number(name, '-') : std::nullopt;
  const auto serial = started ? take_number(name, ':') : std::nullopt;
  const auto user = serial ? take_number(name, ':') : std::nullopt;
  if (!user || name.find_first_not_of("0123456789_") != std::string_view::npos) return std::nullopt;
  return Owner{{*pid_namespace, static_cast<std::int64_t>(*pid), *started}, *user};
}

/// Returns whether a segment is old enough to have its lock, and nobody holds it.
bool is_abandoned(const std::filesystem::path& segment) {
  constexpr std::chrono::minutes young(1);
  std::error_code gone;
  const auto made = std::filesystem::last_write_time(segment, gone);
  if (gone || made > std::filesystem::file_time_type::clock::now() - young) return false;
  const FileDescriptor file(open(segment.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file && flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

using MayGo = std::function<bool(const Owner&, const std::filesystem::path& segment)>;

Result<std::vector<std::string>> sweep(const std::string& folder, const MayGo& may_go) {
  std::error_code error;
  std::vector<std::string> removed;
  std::string kept;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const auto name = entries->path().filename().string();
    const auto owner = owner_of(name);
    if (!owner || !may_go(*owner, entries->path())) continue;
    std::error_code failure;
    if (std::filesystem::remove_all(entries->path(), failure) > 0 && !failure) removed.push_back(name);
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
  const ProcessIdentity own = own_identity();
  return std::string(prefix) + std::to_string(own.pid_namespace) + '-' + std::to_string(own.pid) + '-' +
         std::to_string(own.started) + '-' + std::to_string(made.fetch_add(1));
}

FileDescriptor hold_shared_memory(const std::filesystem::path& segment) {
  FileDescriptor file(open(segment.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file) (void)flock(file.get(), LOCK_SH | LOCK_NB);
  return file;
}

Result<std::vector<std::string>> sweep_shared_memory(const std::string& folder) {
  const Owner own = this_process();
  return sweep(folder, [&own](const Owner& owner, const std::filesystem::path& segment) {
    if (owner.user != own.user) return false;
    const bool known = owner.process.pid_namespace == own.process.pid_namespace;
    return known ? !is_alive(owner.process) : is_abandoned(segment);
  });
}

Result<std::vector<std::string>> sweep_own_shared_memory(const std::string& folder) {
  const Owner own = this_process();
  return sweep(folder, [&own](const Owner& owner, const std::filesystem::path&) { return owner == own; });
}

}  // namespace maestro
