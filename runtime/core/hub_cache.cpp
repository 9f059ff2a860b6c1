// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/hub_cache.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

constexpr std::size_t longest_word = 96;  // of a name, by the hub's rules

bool is_word(std::string_view text) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const auto in_word = [&](char c) { return letter(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= longest_word && letter(text.front()) && std::ranges::all_of(text, in_word);
}

std::string download(const std::string& name) {
  return "`hf download " + name + " --local-dir DIR` gets it into a folder DIR";
}

/// Returns the snapshot of a model's folder in the cache.
Result<std::string> snapshot_of(const fs::path& model, const std::string& name) {
  const auto broken = [&](const std::string& reason) {
    return Error{ErrorCode::not_found, model.string() + ": " + reason + "; " + download(name)};
  };
  const fs::path snapshots = model / "snapshots";
  std::error_code failure;
  if (const fs::path main = model / "refs" / "main"; fs::exists(main, failure)) {
    Result<std::string> commit = read_text(main);
    if (!commit) return commit.error();
    commit->resize(std::min(commit->find_last_not_of(" \n\r\t") + 1, commit->size()));
    if (is_word(*commit) && fs::is_directory(snapshots / *commit, failure)) return (snapshots / *commit).string();
    return broken("refs/main names the snapshot \"" + printable(*commit) + "\", which is missing");
  }
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(snapshots, failure), end; !failure && entry != end; entry.increment(failure)) {
    if (entry->is_directory(failure)) found.push_back(entry->path());
  }
  if (found.size() == 1) return found.front().string();
  if (found.empty()) return broken("holds no snapshot");
  return broken("holds " + std::to_string(found.size()) + " snapshots and no refs/main; name the folder of a snapshot");
}

}  // namespace

HubEnvironment HubEnvironment::of_process() {
  return {variable("HF_HUB_CACHE"), variable("HF_HOME"), variable("XDG_CACHE_HOME"), variable("HOME")};
}

std::vector<fs::path> hub_caches(const HubEnvironment& environment) {
  std::vector<fs::path> caches;
  const auto add = [&](const std::string& base, const char* below) {
    if (!base.empty()) caches.push_back(*below == '\0' ? fs::path(base) : fs::path(base) / below);
  };
  add(environment.hub_cache, "");
  add(environment.hf_home, "hub");
  add(environment.cache_home, "huggingface/hub");
  add(environment.home, ".cache/huggingface/hub");
  return caches;
}

bool is_hub_name(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && is_word(text.substr(0, slash)) && is_word(text.substr(slash + 1));
}

Result<std::string> find_model(const std::string& text, const HubEnvironment& environment) {
  std::error_code failure;
  if (!is_hub_name(text) || fs::exists(text, failure)) return text;
  const std::size_t slash = text.find('/');
  const std::string folder = "models--" + text.substr(0, slash) + "--" + text.substr(slash + 1);
  std::string searched;
  for (const fs::path& cache : hub_caches(environment)) {
    if (fs::is_directory(cache / folder, failure)) return snapshot_of(cache / folder, text);
    searched += (searched.empty() ? "" : ", ") + cache.string();
  }
  return Error{ErrorCode::not_found,
               printable(text) + ": no such folder, and no model of this name in the hub's cache (" +
                   (searched.empty() ? "no variable places it" : searched) + "); " + download(text)};
}

}  // namespace maestro
