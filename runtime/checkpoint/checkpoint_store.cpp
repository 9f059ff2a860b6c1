// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_store.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/checkpoint/section_files.hpp"
#include "runtime/model/adapter_config.hpp"
#include "runtime/model/model_files.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

bool is_section_name(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || c == '_' || c == '-' || c == '.');
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, allowed);
}

/// Returns whether a checkpoint belongs to another run. An unreadable checkpoint does not: a run that continues from an
/// earlier step replaces it.
bool is_of_other_run(const fs::path& checkpoint, const std::string& run) {
  const Result<Manifest> manifest = load_manifest(checkpoint);
  return manifest && manifest->run.id != run;
}

Status check_section(const std::string& name, StatePart part) {
  if (!is_section_name(name)) {
    return Error{ErrorCode::invalid_argument,
                 "section name \"" + name + "\" cannot name a folder; use letters, digits, '_', '-' and '.'"};
  }
  constexpr std::uint32_t most_parts = 99999;  // five digits of the file's name
  if (part.index < part.count && part.count <= most_parts) return {};
  return Error{ErrorCode::invalid_argument, "section " + name + ": invalid part with index " +
                                                std::to_string(part.index) + " of " + std::to_string(part.count) +
                                                "; a section has 1 to " + std::to_string(most_parts) + " parts"};
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path root, CheckpointStoreOptions options)
    : root_(std::move(root)), options_(std::move(options)) {
  if (options_.keep < 1) {
    throw JobError("[train] keep_checkpoints = " + std::to_string(options_.keep) + " would keep none; the least is 1");
  }
}

Result<fs::path> CheckpointStore::begin(StepId step, std::string_view run) const {
  std::error_code failure;
  fs::create_directories(root_, failure);
  if (failure) return system_error("cannot create folder", root_, failure.value());
  done("create root");
  fs::path staging = root_ / checkpoint_folder_name(step.value(), CheckpointKind::staging, run);
  if (const Status removed = remove_tree(staging); !removed) return removed.error();
  fs::create_directory(staging, failure);
  if (failure) return system_error("cannot create folder", staging, failure.value());
  done("create staging");
  if (const Status flushed = sync_folder(root_); !flushed) return flushed.error();
  return staging;
}

Result<std::vector<FileRecord>> CheckpointStore::write_section(const fs::path& staging, std::string_view section,
                                                               const SectionState& state) const {
  const std::string name(section);
  if (const Status checked = check_section(name, state.part); !checked) return checked.error();
  const fs::path folder = staging / name;
  std::error_code failure;
  fs::create_directory(folder, failure);  // succeeds if another part's writer was faster
  if (failure) return system_error("cannot create folder", folder, failure.value());
  done("create section");
  std::vector<FileRecord> records;
  const auto keep = [&](std::string_view file, Result<WrittenFile> written) -> Status {
    if (!written) return Error{written.error().code, "section " + name + ": " + written.error().message};
    records.push_back({name + "/" + std::string(file), written->bytes, written->checksum});
    return {};
  };
  if (state.part.index == 0) {
    const std::vector<std::string> prepared = prepared_files(name);
    for (const std::string& file : prepared) {
      const fs::path source = options_.model_files / name / file;
      if (const Status kept = keep(file, copy_model_file(source, folder / file, options_.after)); !kept)
        return kept.error();
    }
    if (std::ranges::find(prepared, section_config_file) == prepared.end()) {
      const Status kept =
          keep(section_config_file, write_file(folder / section_config_file, state.config, options_.after));
      if (!kept) return kept.error();
    }
  }
  // transformers refuses a file without the framework of its layout in the metadata.
  const std::string model = state.adapters ? adapter_file(state.part) : model_file(state.part);
  Status kept = keep(model, write_safetensors(folder / model, state.parameters, {{"format", "pt"}}, options_.after));
  if (!kept) return kept.error();
  const std::string optimizer = optimizer_file(state.part);
  const Metadata step{{optimizer_step_key, std::to_string(state.optimizer_step)}};
  kept = keep(optimizer, write_safetensors(folder / optimizer, state.optimizer, step, options_.after));
  if (!kept) return kept.error();
  for (const EarlierWeights& weights : state.earlier) {
    fs::create_directory(folder / "versions", failure);
    if (failure) return system_error("cannot create folder", folder / "versions", failure.value());
    const std::string file = earlier_weights_file(weights.step, state.part);
    kept = keep(file, write_safetensors(folder / file, weights.tensors, {}, options_.after));
    if (!kept) return kept.error();
  }
  if (!state.earlier.empty()) {
    if (const Status flushed = sync_folder(folder / "versions"); !flushed) return flushed.error();
  }
  if (const Status flushed = sync_folder(staging); !flushed) return flushed.error();
  return records;
}

std::vector<std::string> CheckpointStore::prepared_files(const std::string& section) const {
  if (options_.model_files.empty()) return {};
  const fs::path folder = options_.model_files / section;
  std::vector<std::string> files = model_files(folder);
  std::error_code failure;
  for (const std::string_view file : {section_config_file, adapter_config_file}) {
    if (fs::exists(folder / file, failure)) files.emplace_back(file);
  }
  return files;
}

Status CheckpointStore::commit(const fs::path& staging, Manifest manifest) const {
  if (const Status checked = check_staged(staging, manifest); !checked) return checked;
  if (const Status indexed = write_indexes(staging, manifest); !indexed) {
    return Error{indexed.error().code, "cannot commit: " + indexed.error().message};
  }
  manifest.sequence = next_sequence();
  manifest.maestro_version = MAESTRO_VERSION;
  const Result<WrittenFile> written = write_file(staging / manifest_file, manifest_text(manifest), options_.after);
  if (!written) return written.error();
  if (const Status published = publish(staging, manifest); !published) return published;
  const Status removed = remove_superseded(manifest);
  if (removed) return {};
  return Error{removed.error().code, "the checkpoint of step " + std::to_string(manifest.step) +
                                         " is in place, but older ones stay: " + removed.error().message};
}

Status CheckpointStore::check_staged(const fs::path& staging, const Manifest& manifest) const {
  const auto folder = parse_checkpoint_folder(staging);
  if (!folder || folder->kind != CheckpointKind::staging || folder->step != manifest.step ||
      folder->run != manifest.run.id) {
    return Error{ErrorCode::internal,
                 staging.string() + " is not the staging folder of step " + std::to_string(manifest.step)};
  }
  for (const FileRecord& record : manifest.files) {
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(staging / record.path, failure);
    if (failure) return system_error("cannot commit: lost", staging / record.path, failure.value());
    if (size == record.bytes) continue;
    return Error{ErrorCode::corrupt, "cannot commit: " + (staging / record.path).string() + " has " +
                                         std::to_string(size) + " bytes, but its writer wrote " +
                                         std::to_string(record.bytes)};
  }
  return {};
}

Status CheckpointStore::write_indexes(const fs::path& staging, Manifest& manifest) const {
  for (const std::string& section : manifest.sections()) {
    if (!is_in_parts(manifest, section)) continue;
    // Maps the section as read_section does: a section that cannot be read back must not be committed (CK-2).
    const Result<StoredSection> stored = map_section(staging, manifest, section);
    if (!stored) return stored.error();
    if (stored->state.adapters) continue;
    const Result<std::string> text = index_text(*stored);
    if (!text) return text.error();
    const Result<WrittenFile> written = write_file(staging / section / section_index_file, *text, options_.after);
    if (!written) return written.error();
    manifest.files.push_back({section + "/" + std::string(section_index_file), written->bytes, written->checksum});
  }
  return {};
}

Status CheckpointStore::publish(const fs::path& staging, const Manifest& manifest) const {
  const std::uint64_t step = manifest.step;
  const fs::path complete = root_ / checkpoint_folder_name(step, CheckpointKind::complete);
  const fs::path replaced = root_ / checkpoint_folder_name(step, CheckpointKind::replaced);
  std::error_code failure;
  if (fs::exists(complete, failure)) {
    for (const fs::path& there : {complete, replaced}) {
      if (!is_of_other_run(there, manifest.run.id)) continue;
      return Error{ErrorCode::unavailable,
                   there.string() + " belongs to another run and stays; choose another train.out"};
    }
    // A folder cannot be renamed over a full folder. The old folder gets a name that counts as loadable until its
    // successor is in place (CK-2).
    if (fs::exists(replaced, failure)) {
      if (const Status removed = remove_folder(replaced, step); !removed) return removed;
    }
    if (const Status aside = rename_folder(complete, replaced); !aside) return aside;
  }
  if (const Status renamed = rename_folder(staging, complete); !renamed) return renamed;
  return sync_folder(root_);
}

Status CheckpointStore::remove_superseded(const Manifest& committed) const {
  const auto folders = list_checkpoint_folders(root_);
  if (!folders) return folders.error();
  std::vector<std::pair<std::uint64_t, const CheckpointFolder*>> by_sequence;
  const std::vector<CheckpointFolder> candidates = loadable(*folders);
  for (const CheckpointFolder& folder : candidates) {
    // An unreadable checkpoint is left for inspection.
    const Result<Manifest> manifest = load_manifest(folder.path);
    if (manifest && manifest->run.id == committed.run.id) by_sequence.emplace_back(manifest->sequence, &folder);
  }
  std::ranges::sort(by_sequence, std::greater<>());
  for (std::size_t at = static_cast<std::size_t>(options_.keep); at < by_sequence.size(); ++at) {
    const CheckpointFolder& old = *by_sequence[at].second;
    if (const Status removed = remove_folder(old.path, old.step); !removed) return removed;
  }
  for (const CheckpointFolder& folder : *folders) {
    const auto same_path = [&](const CheckpointFolder& other) { return other.path == folder.path; };
    const bool stale =
        folder.kind == CheckpointKind::staging && folder.step < committed.step && folder.run == committed.run.id;
    const bool replaced = folder.kind == CheckpointKind::replaced && std::ranges::none_of(candidates, same_path) &&
                          !is_of_other_run(folder.path, committed.run.id);
    Status removed;
    if (folder.kind == CheckpointKind::removed || stale) removed = remove_tree(folder.path);
    if (replaced) removed = remove_folder(folder.path, folder.step);
    if (!removed) return removed;
  }
  return sync_folder(root_);
}

Status CheckpointStore::remove_folder(const fs::path& folder, std::uint64_t step) const {
  // Renamed first: a partial checkpoint must not look complete (CK-1).
  const fs::path doomed = root_ / checkpoint_folder_name(step, CheckpointKind::removed);
  if (const Status cleared = remove_tree(doomed); !cleared) return cleared;
  if (const Status renamed = rename_folder(folder, doomed); !renamed) return renamed;
  if (const Status flushed = sync_folder(root_); !flushed) return flushed;
  return remove_tree(doomed);
}

Status CheckpointStore::remove_tree(const fs::path& folder) const {
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure) return system_error("cannot remove", folder, failure.value());
  done("remove " + folder.filename().string());
  return {};
}

Status CheckpointStore::rename_folder(const fs::path& from, const fs::path& to) const {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return system_error("cannot rename " + from.string() + " to", to, errno);
  }
  done("rename to " + to.filename().string());
  return {};
}

std::uint64_t CheckpointStore::next_sequence() const {
  std::uint64_t last = 0;
  const auto folders = list_checkpoint_folders(root_);
  if (!folders) return 1;
  for (const CheckpointFolder& folder : *folders) {
    if (const Result<Manifest> manifest = load_manifest(folder.path)) last = std::max(last, manifest->sequence);
  }
  return last + 1;
}

}  // namespace maestro
