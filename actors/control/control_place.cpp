#include "actors/control/control_place.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "actors/control/socket_address.hpp"
#include "actors/launch/runtime_folder.hpp"
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

std::vector<std::string> control_addresses() {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(runtime_folder())) {
    const fs::path& path = entry.path();
    if (path.extension() != ".sock" && path.extension() != ".token") continue;
    const std::string address = path.extension() == ".sock" ? "unix:" + path.string() : path.stem().string();
    if (somebody_listens(address)) {
      found.push_back(address);
    } else {
      std::error_code gone_already;
      fs::remove(path, gone_already);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace maestro
