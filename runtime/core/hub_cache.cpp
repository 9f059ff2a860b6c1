// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/hub_cache.hpp"

#include <algorithm>
#include <array>
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

constexpr std::size_t longest_word = 96;  // in a name, by the hub's rules
constexpr std::size_t most_shown = 300;   // bytes of a path in a message

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

/// Returns whether `path` is inside `folder`; both are canonical.
bool is_within(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

/// Returns whether `file` is a blob in a cache of this machine, or in the cache whose snapshot `folder` is. Both are
/// canonical.
bool is_blob(const fs::path& file, const fs::path& folder, const HubEnvironment& environment) {
  const fs::path blobs = file.parent_path(), model = blobs.parent_path();
  if (blobs.filename() != "blobs") return false;
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path()) {
    if (above.filename() == "snapshots" && above.parent_path() == model) return true;
  }
  std::error_code failure;
  return std::ranges::any_of(hub_caches(environment), [&](const fs::path& cache) {
    return fs::equivalent(cache, model.parent_path(), failure);
  });
}

/// Returns whether a file of this name may belong to a model.
bool has_model_extension(const fs::path& file) {
  constexpr std::array<std::string_view, 5> extensions{".json", ".safetensors", ".model", ".jinja", ".txt"};
  return std::ranges::find(extensions, file.extension().string()) != extensions.end();
}

/// Implements find_model() without checking the links.
Result<std::string> locate_model(const std::string& text, const HubEnvironment& environment) {
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

/// Returns the folder of a model's or tokenizer's file, or the folder itself; nothing for another path.
fs::path model_folder_of(const fs::path& path) {
  std::error_code failure;
  if (fs::is_directory(path, failure)) return path;
  if (!fs::exists(path, failure) || !has_model_extension(path)) return {};
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
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

Status check_model_links(const fs::path& folder, const HubEnvironment& environment) {
  std::error_code failure;
  const fs::path home = fs::canonical(folder, failure);
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code ignored;
    if (!entry->is_symlink(ignored) || !has_model_extension(entry->path())) continue;
    if (!entry->is_regular_file(ignored)) continue;  // its reader refuses it by its kind
    const fs::path target = fs::canonical(entry->path(), ignored);
    if (is_within(target, home) || is_blob(target, home, environment)) continue;
    return Error{ErrorCode::invalid_argument,
                 printable(entry->path().string(), most_shown) + " is a link out of its folder, to " +
                     printable(target.string(), most_shown) + "; put the file itself there"};
  }
  return {};
}

Result<std::string> find_model(const std::string& text, const HubEnvironment& environment) {
  Result<std::string> found = locate_model(text, environment);
  if (!found) return found;
  const fs::path folder = model_folder_of(*found);
  if (folder.empty()) return found;
  if (const Status inside = check_model_links(folder, environment); !inside) return inside.error();
  return found;
}

}  // namespace maestro
