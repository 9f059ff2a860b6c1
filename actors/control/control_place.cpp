// SPDX-License-Identifier: Apache-2.0
#include "actors/control/control_place.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "actors/rpc/runtime_folder.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

bool somebody_listens(const std::string& address) {
  try {
    return static_cast<bool>(connect_to(parse_socket_address(address), "run", std::chrono::seconds(1)));
  } catch (const JobError& error) {
    return error.code() == ErrorCode::timeout;
  }
}

}  // namespace

std::string default_control_address() {
  return "unix:" + (runtime_folder() / (std::to_string(::getpid()) + ".sock")).string();
}

fs::path token_file(const std::string& address) {
  return runtime_folder() / (address + ".token");
}

namespace {

/// Returns the address for a file in the runtime folder; empty: no run made the file.
std::string address_of(const fs::path& path) {
  const std::string kind = path.extension();
  if (kind == ".token") return path.stem().string();
  return kind == ".sock" || kind == ".rendezvous" || kind == ".peers" ? "unix:" + path.string() : std::string();
}

void remove_left(const fs::path& path) {
  std::error_code gone_already;
  fs::remove(path, gone_already);
}

}  // namespace

std::vector<std::string> control_addresses() {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(runtime_folder())) {
    const fs::path& path = entry.path();
    if (path.extension() != ".sock" && path.extension() != ".token") continue;
    const std::string address = address_of(path);
    if (somebody_listens(address)) {
      found.push_back(address);
    } else {
      remove_left(path);
    }
  }
  std::ranges::sort(found);
  return found;
}

void check_control_address(const std::string& address) {
  if (address.empty() || address == "none") return;
  SocketAddress wanted = parse_socket_address(address);
  const FileDescriptor listener = listen_at(wanted);
  if (wanted.local()) remove_left(wanted.path);
}

void remove_sockets_of(std::int64_t pid) noexcept {
  const std::string number = std::to_string(pid);
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(runtime_folder())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(number + ".") || name.starts_with(number + "-")) remove_left(entry.path());
    }
  } catch (const std::exception&) {  // see sweep_runtime_folder()
  }
}

void remove_sockets_of(const ProcessIdentity& process) noexcept {
  if (process.pid_namespace == own_identity().pid_namespace) remove_sockets_of(process.pid);
}

void sweep_runtime_folder() noexcept {
  constexpr std::chrono::seconds young(10);
  try {
    const auto old = fs::file_time_type::clock::now() - young;
    for (const fs::directory_entry& entry : fs::directory_iterator(runtime_folder())) {
      const std::string address = address_of(entry.path());
      if (address.empty() || entry.last_write_time() > old || somebody_listens(address)) continue;
      remove_left(entry.path());
    }
  } catch (const std::exception&) {  // remaining files are harmless; an unusable folder fails at its next use
  }
}

}  // namespace maestro
