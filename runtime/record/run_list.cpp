// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_list.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "runtime/core/json_value.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t longest_entry = 64 << 10;  // bytes

/// Returns the folder of the list; empty if the environment has no place for it.
fs::path list_folder() {
  // By the XDG base directory specification a relative path is ignored.
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && fs::path(state).is_absolute()) {
    return fs::path(state) / "maestro" / "runs";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? fs::path() : fs::path(home) / ".local/state/maestro/runs";
}

/// Makes a folder and its missing parents, which only this user may enter.
Status make_private(const fs::path& folder) {
  std::error_code failure;
  if (fs::is_directory(folder, failure)) return {};
  if (const Status parent = make_private(folder.parent_path()); !parent) return parent;
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return system_error("cannot create folder", folder, errno);
}

/// Returns the same path for all names of a folder.
fs::path known_as(const fs::path& folder) {
  std::error_code failure;
  const fs::path canonical = fs::weakly_canonical(folder, failure);
  return failure ? fs::absolute(folder).lexically_normal() : canonical;
}

fs::path file_of(const fs::path& list, const fs::path& folder) {
  return list / (checksum_of(folder.string()) + ".json");
}

std::optional<ListedRun> read_entry(const fs::path& file) {
  std::error_code failure;
  if (fs::file_size(file, failure) > longest_entry || failure) return std::nullopt;
  const Result<std::string> text = read_text(file);
  if (!text) return std::nullopt;
  const auto run = read_json(*text, file.string(), ErrorCode::corrupt, [](const JsonValue& entry) {
    return ListedRun{entry.at("folder").text(), entry.at("job").text(), entry.at("started").text()};
  });
  return run ? std::optional(*run) : std::nullopt;
}

struct Entry {
  fs::path file;
  ListedRun run;
};

/// Returns the entries that can be read, the latest start first.
std::vector<Entry> read_entries(const fs::path& list) {
  std::vector<Entry> entries;
  std::error_code failure;
  fs::directory_iterator files(list, failure);
  for (; !failure && files != fs::directory_iterator(); files.increment(failure)) {
    if (files->path().extension() != ".json") continue;
    if (auto run = read_entry(files->path())) entries.push_back({files->path(), std::move(*run)});
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), [](const Entry& each) { return each.run.started; });
  return entries;
}

bool is_there(const ListedRun& run) {
  std::error_code failure;
  return fs::is_directory(run.folder, failure);
}

/// Establishes RR-1.
void prune(const fs::path& list) {
  std::size_t kept = 0;
  for (const Entry& entry : read_entries(list)) {
    std::error_code gone_already;
    if (is_there(entry.run) && kept < most_listed_runs) {
      ++kept;
    } else {
      fs::remove(entry.file, gone_already);
    }
  }
}

}  // namespace

Status list_run(const ListedRun& run) {
  const fs::path list = list_folder();
  if (list.empty()) return Error{ErrorCode::not_found, "neither XDG_STATE_HOME nor HOME names a folder"};
  if (const Status made = make_private(list); !made) return made;
  const fs::path folder = known_as(run.folder);
  const nlohmann::json entry = {{"folder", folder.string()}, {"job", run.job}, {"started", run.started}};
  const std::string text = entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const auto written = write_file(file_of(list, folder), text); !written) return written.error();
  prune(list);
  return {};
}

Status move_listed_run(const fs::path& from, const fs::path& to) {
  const auto run = read_entry(file_of(list_folder(), known_as(from)));
  return run ? list_run({to, run->job, run->started}) : Status();
}

std::vector<ListedRun> listed_runs() {
  std::vector<ListedRun> runs;
  for (Entry& entry : read_entries(list_folder())) {
    if (is_there(entry.run)) runs.push_back(std::move(entry.run));
  }
  return runs;
}

}  // namespace maestro
