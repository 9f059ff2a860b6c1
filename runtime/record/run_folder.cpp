// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "runtime/checkpoint/checkpoint_archive.hpp"
#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* lock_file = ".lock";
// The entries that a run leaves in its folder. Checkpoints are first: they contain the run's identity.
constexpr std::array<const char*, 11> entries_of_a_run{"checkpoints", archive_folder, "models",     run_file.data(),
                                                       "report.json", "card.md",      "card.html",  "trace.json",
                                                       "page.html",   record_folder,  "tensorboard"};

/// Makes the text of a file fit for a line of an error.
std::string one_line(std::string text) {
  constexpr std::size_t longest = 120;
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return text;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return {text.data(), length};
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

/// Replaces the record of an earlier holder by host, process, job and start time, one per line. Returns its length.
std::size_t sign(int lock, const std::string& job) {
  const std::string text =
      host_name() + "\n" + std::to_string(getpid()) + "\n" + one_line(job) + "\n" + now_text() + "\n";
  // The lock is held even if its record cannot be written.
  if (ftruncate(lock, 0) == 0) (void)!write(lock, text.data(), text.size());
  return text.size();
}

bool is_held_elsewhere(int failure) {
  return failure == EWOULDBLOCK;
}

/// Takes the lock, or returns false with errno. A check_free() of another process shares it for a moment, which is long
/// if that process gets no core; only a run keeps others from sharing it.
bool try_lock(int file) {
  constexpr int attempts = 500;
  for (int attempt = 1; flock(file, LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (!is_held_elsewhere(errno) || attempt == attempts || flock(file, LOCK_SH | LOCK_NB) != 0) return false;
    flock(file, LOCK_UN);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

/// Returns " of job 'real' (step 9)".
std::string described(const CheckpointFolder& folder) {
  const Result<Manifest> manifest = load_manifest(folder.path);
  const std::string job = manifest && !manifest->run.job.empty() ? " of job '" + one_line(manifest->run.job) + "'" : "";
  return job + " (step " + std::to_string(folder.step) + ")";
}

}  // namespace

RunIdentity new_run(std::string job) {
  std::random_device random;
  std::array<char, 17> id{};
  std::snprintf(id.data(), id.size(), "%08x%08x", random(), random());
  return {id.data(), std::move(job), now_text()};
}

void RunLock::note_address(const std::string& address) const {
  const auto end = static_cast<off_t>(signed_bytes_);
  const std::string line = one_line(address) + "\n";
  if (file_ && ftruncate(file_.get(), end) == 0) (void)!pwrite(file_.get(), line.data(), line.size(), end);
}

RunHolder RunFolder::read_holder() const {
  RunHolder holder;
  const Result<std::string> text = read_text(folder_ / lock_file);
  if (!text) return holder;
  std::istringstream lines(*text);
  for (std::string* line : {&holder.host, &holder.process, &holder.job, &holder.since, &holder.address}) {
    std::getline(lines, *line);
  }
  return holder;
}

std::optional<RunHolder> RunFolder::holder() const {
  return check_free() ? std::nullopt : std::optional(read_holder());
}

Error RunFolder::in_use() const {
  const RunHolder by = read_holder();
  std::string holder = "another run";  // which has not signed yet
  if (!by.since.empty()) {
    holder = "job '" + one_line(by.job) + "' (process " + one_line(by.process) + " on host " + one_line(by.host) +
             ", since " + one_line(by.since) + ")";
  }
  return {ErrorCode::unavailable, "train.out: " + folder_.string() + " is in use by " + holder +
                                      "; wait until it has ended, or choose another folder"};
}

Result<RunLock> RunFolder::lock(const std::string& job) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) return system_error("train.out: cannot create folder", folder_, failure.value());
  const fs::path path = folder_ / lock_file;
  // Any user who may open the file may hold its lock.
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file) (void)fchmod(file.get(), 0600);  // made by an earlier version
  if (!file) return system_error("train.out: cannot write", path, errno);
  if (!try_lock(file.get())) {
    if (is_held_elsewhere(errno)) return in_use();
    return RunLock();
  }
  const std::size_t signed_bytes = sign(file.get(), job);
  return RunLock(std::move(file), signed_bytes);
}

Status RunFolder::check_free() const {
  // A shared lock, so that two checks at a time do not take each other for a run.
  const FileDescriptor file(open((folder_ / lock_file).c_str(), O_RDONLY | O_CLOEXEC));
  if (file && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && is_held_elsewhere(errno)) return in_use();
  return {};
}

bool RunFolder::has_models_of_other(const std::string& run) const {
  std::error_code failure;
  if (!fs::is_directory(folder_ / "models", failure)) return false;
  const Result<RunIdentity> holder = read_run_identity(folder_ / run_file);
  return !holder || holder->id != run;
}

Status RunFolder::check_holds_only(const std::string& run, bool resumed) const {
  const auto folders = list_checkpoint_folders(checkpoints());
  if (!folders && folders.error().code != ErrorCode::not_found) return folders.error();
  const std::vector<CheckpointFolder> found = folders ? loadable(*folders) : std::vector<CheckpointFolder>();
  const CheckpointFolder* other = nullptr;  // with the highest step
  for (const CheckpointFolder& folder : found) {
    const Result<Manifest> manifest = load_manifest(folder.path);
    // A damaged checkpoint is taken as the resumed run's.
    if (manifest ? manifest->run.id != run : !resumed) other = &folder;
  }
  const bool models = has_models_of_other(run);
  if (other == nullptr && !models) return {};
  const std::string holds = "train.out: " + folder_.string() + " holds " +
                            (other == nullptr ? "the models of a run" : "a run" + described(*other));
  if (resumed) {
    return Error{ErrorCode::invalid_argument, holds + ", which is not the resumed run; choose another folder"};
  }
  int number = 1;
  std::error_code ignored;
  while (fs::exists(aside(number), ignored)) ++number;
  return Error{ErrorCode::invalid_argument, holds + "; --resume " + folder_.string() +
                                                " continues it, --fresh moves it to " + aside(number).string() +
                                                ", or choose another folder"};
}

fs::path RunFolder::aside(int number) const {
  fs::path base = folder_.lexically_normal();
  if (!base.has_filename()) base = base.parent_path();  // "runs/x/"
  if (base == "." || base.filename() == "..") base = fs::absolute(folder_ / "x").lexically_normal().parent_path();
  return base.string() + "." + std::to_string(number);
}

Result<std::optional<fs::path>> RunFolder::set_aside() const {
  const auto folders = list_checkpoint_folders(checkpoints());
  if (!folders && folders.error().code != ErrorCode::not_found) return folders.error();
  std::error_code failure;
  const bool models = fs::exists(folder_ / "models", failure);
  if (!models && (!folders || loadable(*folders).empty())) return std::optional<fs::path>();
  fs::path to = aside(1);
  for (int number = 2; mkdir(to.c_str(), 0777) != 0; ++number) {
    if (errno != EEXIST) return system_error("--fresh: cannot create folder", to, errno);
    to = aside(number);
  }
  for (const char* entry : entries_of_a_run) {
    if (std::rename((folder_ / entry).c_str(), (to / entry).c_str()) == 0 || errno == ENOENT) continue;
    return system_error("--fresh: cannot move " + (folder_ / entry).string() + " to", to, errno);
  }
  return std::optional(to);
}

Status RunFolder::record(const RunIdentity& run) const {
  const Result<WrittenFile> written = write_file(folder_ / run_file, run_identity_text(run));
  return written ? Status() : Status(written.error());
}

}  // namespace maestro
