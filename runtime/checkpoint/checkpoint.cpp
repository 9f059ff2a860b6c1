// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/checkpoint/section_files.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the defect of a file, if any.
std::optional<std::string> problem_of(const fs::path& checkpoint, const FileRecord& record) {
  const fs::path file = checkpoint / record.path;
  const std::string name = printable(record.path);
  std::error_code failure;
  const std::uintmax_t size = fs::file_size(file, failure);
  if (failure) return name + " is missing or unreadable (" + failure.message() + ")";
  if (size != record.bytes) {
    return name + " has " + std::to_string(size) + " bytes instead of " + std::to_string(record.bytes);
  }
  const Result<std::string> checksum = checksum_of_file(file);
  if (!checksum) return checksum.error().message;
  if (*checksum != record.checksum) return name + " was altered: its checksum is wrong";
  return std::nullopt;
}

Status verify_files(const fs::path& checkpoint, const Manifest& manifest, const std::string& prefix) {
  std::string problems;
  for (const FileRecord& record : manifest.files) {
    if (!record.path.starts_with(prefix)) continue;
    if (const auto problem = problem_of(checkpoint, record)) problems += (problems.empty() ? "" : "; ") + *problem;
  }
  if (problems.empty()) return {};
  return Error{ErrorCode::corrupt, "checkpoint " + checkpoint.string() + " is damaged: " + problems};
}

bool has_manifest(const fs::path& folder) {
  std::error_code failure;
  return fs::exists(folder / manifest_file, failure);
}

bool is_folder(const fs::path& path) {
  std::error_code failure;
  return fs::is_directory(path, failure);
}

/// Returns "; the nearest is X" for the entries of the folder that should contain `path`, or nothing.
std::string nearest_sibling(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code failure;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  fs::directory_iterator entries(parent, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
    names.push_back(entries->path().filename().string());
  }
  const auto nearest = nearest_name(path.filename().string(), names);
  return nearest ? "; the nearest is " + (parent / *nearest).string() : "";
}

/// Returns whether a folder directly contains loadable checkpoints.
bool holds_checkpoints(const fs::path& root) {
  const auto folders = list_checkpoint_folders(root);
  return folders && !loadable(*folders).empty();
}

struct Candidate {
  const CheckpointFolder* folder = nullptr;
  Manifest manifest;
};

/// Returns "runs/a/checkpoints/step-00000009 (job 'real')" for each run.
std::string listed(const std::map<std::string, Candidate>& runs) {
  std::string text;
  for (const auto& [id, last] : runs) {
    text += (text.empty() ? "" : " and ") + last.folder->path.string();
    if (!last.manifest.run.job.empty()) text += " (job '" + last.manifest.run.job + "')";
  }
  return text;
}

/// Returns the path of run.json, next to the checkpoints folder.
fs::path run_file_of(const fs::path& root) {
  return root.parent_path() / run_file;
}

/// Returns the latest checkpoint, only of the run that run.json names if this file exists.
Result<fs::path> latest_of_run(const fs::path& root) {
  std::error_code failure;
  if (!fs::exists(run_file_of(root), failure)) return latest_checkpoint(root);
  const Result<RunIdentity> run = read_run_identity(run_file_of(root));
  if (!run) return run.error();
  return latest_checkpoint(root, run->id);
}

}  // namespace

Result<Manifest> load_checkpoint(const fs::path& checkpoint) {
  return load_manifest(checkpoint);
}

Status verify_checkpoint(const fs::path& checkpoint) {
  const Result<Manifest> manifest = load_manifest(checkpoint);
  if (!manifest) return manifest.error();
  return verify_files(checkpoint, *manifest, "");
}

bool has_earlier_weights(const Manifest& manifest, std::string_view section, std::uint64_t step) {
  return !earlier_weights_files(manifest, section, step).empty();
}

Result<std::vector<SafetensorsFile>> read_earlier_weights(const fs::path& checkpoint, std::string_view section,
                                                          std::uint64_t step) {
  const Result<Manifest> manifest = load_manifest(checkpoint);
  if (!manifest) return manifest.error();
  const std::vector<std::string> names = earlier_weights_files(*manifest, section, step);
  if (names.empty()) {
    return Error{ErrorCode::not_found, "checkpoint " + checkpoint.string() + " lacks the weights of section '" +
                                           std::string(section) + "' before step " + std::to_string(step)};
  }
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) {
    if (const Status verified = verify_files(checkpoint, *manifest, name); !verified) return verified.error();
    Result<SafetensorsFile> file = SafetensorsFile::open(checkpoint / name);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  return files;
}

Result<StoredSection> read_section(const fs::path& checkpoint, std::string_view section) {
  const Result<Manifest> manifest = load_manifest(checkpoint);
  if (!manifest) return manifest.error();
  if (const Status found = find_section(checkpoint, *manifest, section); !found) return found.error();
  const Status verified = verify_files(checkpoint, *manifest, std::string(section) + "/");
  if (!verified) return verified.error();
  return map_section(checkpoint, *manifest, section);
}

Result<fs::path> latest_checkpoint(const fs::path& root, const std::optional<std::string>& run) {
  const auto folders = list_checkpoint_folders(root);
  if (!folders) return folders.error();
  const CheckpointFolder* damaged = nullptr;  // with the highest step
  std::optional<Error> damage;
  std::map<std::string, Candidate> runs;  // last committed checkpoint by run id
  const std::vector<CheckpointFolder> candidates = loadable(*folders);
  for (const CheckpointFolder& folder : candidates) {
    Result<Manifest> manifest = load_manifest(folder.path);
    if (!manifest) {
      damaged = &folder;
      damage = manifest.error();
      continue;
    }
    Candidate& best = runs[manifest->run.id];
    if (best.folder == nullptr || manifest->sequence > best.manifest.sequence) best = {&folder, *std::move(manifest)};
  }
  if (!run && runs.size() > 1) {
    return Error{ErrorCode::invalid_argument, root.string() + " holds checkpoints of several runs; the latest are " +
                                                  listed(runs) + "; name the one to resume from"};
  }
  const auto found = run ? runs.find(*run) : runs.begin();
  const CheckpointFolder* best = found == runs.end() ? nullptr : found->second.folder;
  if (damaged != nullptr && (best == nullptr || damaged->step > best->step)) {
    const std::string instead =
        best == nullptr ? "it is the only checkpoint" : "name an earlier one to resume from it: " + best->path.string();
    return Error{ErrorCode::corrupt, "the latest checkpoint is damaged: " + damage->message + "; " + instead};
  }
  if (best != nullptr) return best->path;
  if (runs.empty()) return Error{ErrorCode::not_found, "no checkpoint in " + root.string()};
  return Error{ErrorCode::not_found, "no checkpoint of the run that " + run_file_of(root).string() + " names; " +
                                         root.string() + " holds " + listed(runs) + "; name the one to resume from"};
}

Result<fs::path> resolve_checkpoint(const fs::path& given, std::string_view purpose) {
  fs::path path = given.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/a/" means "runs/a"
  const std::string where = "cannot " + std::string(purpose) + " " + path.string() + ": ";
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    return Error{ErrorCode::not_found, where + "it does not exist" + nearest_sibling(path)};
  }
  if (!is_folder(path)) return Error{ErrorCode::invalid_argument, where + "it is not a folder"};
  const auto named = parse_checkpoint_folder(path);
  if (named && (named->kind == CheckpointKind::staging || named->kind == CheckpointKind::removed)) {
    const Result<fs::path> latest = latest_of_run(path.parent_path());
    return Error{ErrorCode::invalid_argument,
                 where + "it is an unfinished checkpoint" + (latest ? "; the latest is " + latest->string() : "")};
  }
  if (has_manifest(path)) return path;
  if (is_folder(path / "checkpoints") && holds_checkpoints(path / "checkpoints")) {
    return latest_of_run(path / "checkpoints");
  }
  if (holds_checkpoints(path)) return latest_of_run(path);
  return Error{ErrorCode::not_found, where + "looked for " + (path / manifest_file).string() + ", " +
                                         (path / "checkpoints" / "step-*").string() + " and " +
                                         (path / "step-*").string() + " and found none"};
}

}  // namespace maestro
