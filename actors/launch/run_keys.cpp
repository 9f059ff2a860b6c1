// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/run_keys.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "runtime/core/json_text.hpp"
#include "runtime/core/process_identity.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_secret = std::size_t{1} << 16;
constexpr std::int64_t days_of_a_run = 30;

constexpr std::string_view prefix = "maestro-keys-";

std::vector<fs::path> private_places() {
  std::vector<fs::path> places;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr) places.emplace_back(runtime);
  places.insert(places.end(), {"/dev/shm", fs::temp_directory_path()});
  return places;
}

fs::path private_folder() {
  const std::vector<fs::path> places = private_places();
  for (const fs::path& place : places) {
    std::string pattern = (place / (std::string(prefix) + identity_text(own_identity()) + "-XXXXXX")).string();
    if (mkdtemp(pattern.data()) != nullptr) return pattern;  // 0700
  }
  throw JobError("cannot make a private folder for keys in " + places.back().string() + ": " + std::strerror(errno) +
                     "; set TMPDIR to a folder that can be written",
                 ErrorCode::unavailable);
}

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_private(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  stream << text;
  if (!stream.flush()) throw JobError("cannot write " + file.string(), ErrorCode::unavailable);
}

}  // namespace

void sweep_run_keys() noexcept {
  std::error_code ignored;  // folders of other users cannot be removed
  for (const fs::path& place : private_places()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(place, ignored)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix) || !is_of_dead_process(name.substr(prefix.size()))) continue;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

RunKeys RunKeys::make(const std::vector<std::string>& hosts) {
  RunKeys run;
  run.keys_.folder = private_folder();
  KeySetOptions options;
  options.days = days_of_a_run;
  options.hosts = hosts;
  make_key_set(run.keys_.folder, options);
  run.keys_ = load_key_set(run.keys_.folder);
  return run;
}

RunKeys RunKeys::unpack(const std::string& line) {
  RunKeys run;
  run.keys_.folder = private_folder();
  const auto is_text = [](const nlohmann::json& text) { return text.is_string(); };
  const Result<nlohmann::json> files = parse_json(line, "the keys of the run");
  if (!files || !files->is_object() || !std::ranges::all_of(*files, is_text)) {
    throw JobError(
        "the keys of the run arrived damaged through the remote shell; does a start-up file of the shell print text?",
        ErrorCode::corrupt);
  }
  for (const auto& [name, text] : files->items()) {
    write_private(run.keys_.folder / fs::path(name).filename(), text.get<std::string>());
  }
  run.keys_ = load_key_set(run.keys_.folder);
  return run;
}

RunKeys::RunKeys(RunKeys&& other) noexcept : keys_(std::exchange(other.keys_, {})) {}

RunKeys::~RunKeys() {
  if (keys_.folder.empty()) return;
  std::error_code ignored;  // cannot be handled here
  fs::remove_all(keys_.folder, ignored);
}

std::string pack(const KeySet& keys) {
  nlohmann::json files;
  for (const fs::path& file : {keys.certificate, keys.key, keys.authority}) {
    files[file.filename().string()] = contents(file);
  }
  files["token"] = keys.token + "\n";
  return files.dump();
}

std::string read_secret_line() {
  std::string line;
  char c = 0;
  while (line.size() < longest_secret) {
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (c == '\n') return line;
    line += c;
  }
  throw JobError(
      "the keys of the run did not arrive through the remote shell; this process is meant to be started by "
      "`maestro train --hosts`");
}

}  // namespace maestro
