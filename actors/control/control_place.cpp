#include "actors/control/control_place.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "actors/control/socket_address.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

fs::path folder_name() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return fs::path(runtime) / "maestro";
  return "/tmp/maestro-" + std::to_string(::geteuid());
}

bool somebody_listens(const std::string& address) {
  try {
    return static_cast<bool>(connect_to(parse_socket_address(address), "run", std::chrono::seconds(1)));
  } catch (const JobError& error) {
    return error.code() == ErrorCode::timeout;
  }
}

}  // namespace

fs::path control_folder() {
  const fs::path folder = folder_name();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw JobError(system_error("cannot make", folder, errno));
  struct stat there {};
  if (::lstat(folder.c_str(), &there) != 0) throw JobError(system_error("cannot look at", folder, errno));
  if (!S_ISDIR(there.st_mode) || there.st_uid != ::geteuid() || (there.st_mode & 077) != 0) {
    throw JobError(folder.string() + " must be a folder of this user that nobody else may enter (mode 0700)",
                   ErrorCode::unavailable);
  }
  return folder;
}

std::string default_control_address() {
  return "unix:" + (control_folder() / (std::to_string(::getpid()) + ".sock")).string();
}

fs::path token_file(const std::string& address) {
  return control_folder() / (address + ".token");
}

std::vector<std::string> control_addresses() {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(control_folder())) {
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
