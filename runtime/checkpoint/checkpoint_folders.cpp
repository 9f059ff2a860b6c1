// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_folders.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step-";

struct Suffix {
  CheckpointKind kind;
  std::string_view text;
};
constexpr std::array<Suffix, 4> suffixes{{{CheckpointKind::removed, ".removed.tmp"},
                                          {CheckpointKind::staging, ".tmp"},
                                          {CheckpointKind::replaced, ".old"},
                                          {CheckpointKind::complete, ""}}};

}  // namespace

std::string checkpoint_folder_name(std::uint64_t step, CheckpointKind kind, std::string_view run) {
  constexpr std::size_t width = 8;  // so that names sort like steps
  const std::string digits = std::to_string(step);
  std::string name(prefix);
  if (digits.size() < width) name.append(width - digits.size(), '0');
  name += digits;
  if (!run.empty()) name.append(".").append(run);
  return name.append(std::ranges::find(suffixes, kind, &Suffix::kind)->text);
}

std::optional<CheckpointFolder> parse_checkpoint_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  std::string_view rest = name;
  const auto suffix = std::ranges::find_if(suffixes, [&](const Suffix& one) { return rest.ends_with(one.text); });
  rest.remove_suffix(suffix->text.size());
  if (!rest.starts_with(prefix)) return std::nullopt;
  rest.remove_prefix(prefix.size());
  std::string run;
  if (const std::size_t dot = rest.find('.'); suffix->kind == CheckpointKind::staging && dot != std::string::npos) {
    run = rest.substr(dot + 1);
    if (!is_run_id(run)) return std::nullopt;
    rest = rest.substr(0, dot);
  }
  std::uint64_t step = 0;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), step);
  if (failure != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  // A step has exactly one folder name: "step-7" is not a folder of maestro.
  if (name != checkpoint_folder_name(step, suffix->kind, run)) return std::nullopt;
  return CheckpointFolder{path, step, suffix->kind, std::move(run)};
}

Result<std::vector<CheckpointFolder>> list_checkpoint_folders(const fs::path& root) {
  std::vector<CheckpointFolder> folders;
  std::error_code failure;
  fs::directory_iterator entries(root, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
    std::error_code kind_failure;
    auto folder = parse_checkpoint_folder(entries->path());
    if (folder && entries->is_directory(kind_failure)) folders.push_back(*std::move(folder));
  }
  if (failure) return system_error("cannot list", root, failure.value());
  std::ranges::sort(folders, {}, [](const CheckpointFolder& folder) { return std::pair(folder.step, folder.kind); });
  return folders;
}

std::vector<CheckpointFolder> loadable(const std::vector<CheckpointFolder>& folders) {
  std::vector<CheckpointFolder> found;
  for (const CheckpointFolder& folder : folders) {
    const auto succeeds = [&](const CheckpointFolder& other) {
      return other.kind == CheckpointKind::complete && other.step == folder.step;
    };
    const bool complete = folder.kind == CheckpointKind::complete;
    const bool orphan = folder.kind == CheckpointKind::replaced && std::ranges::none_of(folders, succeeds);
    if (complete || orphan) found.push_back(folder);
  }
  return found;
}

}  // namespace maestro
