// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_archive.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iomanip>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/checkpoint/model_export.hpp"
#include "runtime/checkpoint/section_files.hpp"
#include "runtime/model/model_files.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Makes a second name for a file, or a copy if the file system lacks hard links.
Status link_file(const fs::path& from, const fs::path& to, const OperationHook& after) {
  if (link(from.c_str(), to.c_str()) != 0) {
    constexpr std::array none{EXDEV, EPERM, EMLINK, ENOTSUP, ENOSYS};
    if (std::ranges::find(none, errno) == none.end())
      return system_error("cannot link " + from.string() + " to", to, errno);
    const Result<WrittenFile> copied = copy_model_file(from, to, after);
    if (!copied) return copied.error();
  }
  if (after) after("link " + to.filename().string());
  return {};
}

/// Links a manifest's files below `from` to the same names below `to`, and makes their folders.
Status link_files(const fs::path& from, const Manifest& manifest, const fs::path& to, const OperationHook& after) {
  std::set<fs::path> folders;
  for (const FileRecord& file : manifest.files) {
    const fs::path target = to / file.path;
    std::error_code failure;
    fs::create_directories(target.parent_path(), failure);
    if (failure) return system_error("cannot create folder", target.parent_path(), failure.value());
    folders.insert(target.parent_path());
    if (const Status linked = link_file(from / file.path, target, after); !linked) return linked;
  }
  for (const fs::path& folder : folders) {
    if (const Status flushed = sync_folder(folder); !flushed) return flushed;
  }
  return {};
}

/// Returns the run id of an archived folder; nothing if it cannot be read.
std::optional<std::string> run_of(const fs::path& kept) {
  if (const Result<Manifest> manifest = load_manifest(kept)) return manifest->run.id;
  if (const Result<RunIdentity> run = read_run_identity(kept / run_file)) return run->id;
  return std::nullopt;
}

Status remove_tree(const fs::path& folder) {
  std::error_code failure;
  fs::remove_all(folder, failure);
  return failure ? Status(system_error("cannot remove", folder, failure.value())) : Status();
}

}  // namespace

Result<fs::path> CheckpointArchive::keep(const fs::path& checkpoint, ArchiveForm form) const {
  const Result<Manifest> manifest = load_manifest(checkpoint);
  if (!manifest) return manifest.error();
  const fs::path kept = root_ / checkpoint_folder_name(manifest->step, CheckpointKind::complete);
  const Result<Manifest> there = load_manifest(kept);
  const bool same = there && there->run == manifest->run && there->sequence == manifest->sequence;
  if (same && form == ArchiveForm::full) return kept;
  if (const auto run = run_of(kept); run && run != manifest->run.id) {
    return Error{ErrorCode::unavailable, kept.string() + " belongs to another run and stays; choose another train.out"};
  }
  if (const Status swept = sweep(); !swept) return swept.error();
  const fs::path staging = root_ / checkpoint_folder_name(manifest->step, CheckpointKind::staging);
  if (const Status written = write(checkpoint, *manifest, form, staging); !written) return written.error();
  if (const Status published = publish(staging, manifest->step); !published) return published.error();
  return kept;
}

/// Makes the folder and removes leftovers of crashes.
Status CheckpointArchive::sweep() const {
  std::error_code failure;
  fs::create_directories(root_, failure);
  if (failure) return system_error("cannot create folder", root_, failure.value());
  const auto folders = list_checkpoint_folders(root_);
  if (!folders) return folders.error();
  const std::vector<CheckpointFolder> whole = loadable(*folders);
  for (const CheckpointFolder& folder : *folders) {
    if (std::ranges::find(whole, folder.path, &CheckpointFolder::path) != whole.end()) continue;
    if (const Status removed = remove_tree(folder.path); !removed) return removed;
    done("remove " + folder.path.filename().string());
  }
  return {};
}

Status CheckpointArchive::write(const fs::path& checkpoint, const Manifest& manifest, ArchiveForm form,
                                const fs::path& staging) const {
  std::error_code failure;
  fs::create_directory(staging, failure);
  if (failure) return system_error("cannot create folder", staging, failure.value());
  done("create staging");
  if (form == ArchiveForm::full) {
    if (const Status linked = link_files(checkpoint, manifest, staging, after_); !linked) return linked;
    const Status linked = link_file(checkpoint / manifest_file, staging / manifest_file, after_);
    return linked ? sync_folder(staging) : linked;
  }
  ExportOptions options;
  options.dtype = WeightDtype::bf16;
  for (const std::string& section : manifest.sections()) {
    const Result<std::vector<std::string>> model = sections_of_model(checkpoint, section, false);
    if (!model) return model.error();
    if (model->front() != section) continue;  // exported with the first section of its model
    const std::string name = joined_names(*model);
    const Result<ExportedModel> exported = export_section(checkpoint, section, staging / name, options);
    if (!exported) return exported.error();
    done("export " + name);
  }
  const Result<WrittenFile> written = write_file(staging / run_file, run_identity_text(manifest.run), after_);
  return written ? Status() : Status(written.error());
}

Status CheckpointArchive::publish(const fs::path& staging, std::uint64_t step) const {
  const fs::path kept = root_ / checkpoint_folder_name(step, CheckpointKind::complete);
  const fs::path replaced = root_ / checkpoint_folder_name(step, CheckpointKind::replaced);
  std::error_code failure;
  if (fs::exists(kept, failure)) {  // a folder cannot be renamed over a full folder
    if (const Status removed = remove_tree(replaced); !removed) return removed;
    if (std::rename(kept.c_str(), replaced.c_str()) != 0) return system_error("cannot rename", kept, errno);
    done("rename to " + replaced.filename().string());
  }
  if (std::rename(staging.c_str(), kept.c_str()) != 0) return system_error("cannot rename", staging, errno);
  done("rename to " + kept.filename().string());
  if (const Status flushed = sync_folder(root_); !flushed) return flushed;
  const Status removed = remove_tree(replaced);
  done("remove " + replaced.filename().string());
  return removed;
}

std::string spike_folder_name(std::uint64_t first_step) {
  std::ostringstream name;
  name << "spike-" << std::setw(8) << std::setfill('0') << first_step;
  return name.str();
}

std::optional<fs::path> checkpoint_before(std::span<const fs::path> roots, const std::string& run, std::uint64_t before,
                                          const std::function<bool(const Manifest&)>& accepts) {
  std::optional<fs::path> best;
  std::pair<std::uint64_t, std::uint64_t> highest;  // step and sequence
  for (const fs::path& root : roots) {
    const auto folders = list_checkpoint_folders(root);
    if (!folders) continue;
    for (const CheckpointFolder& folder : loadable(*folders)) {
      const Result<Manifest> manifest = load_manifest(folder.path);
      if (!manifest || manifest->run.id != run || manifest->step >= before || !accepts(*manifest)) continue;
      const std::pair at(manifest->step, manifest->sequence);
      if (best && at <= highest) continue;
      best = folder.path;
      highest = at;
    }
  }
  return best;
}

Result<fs::path> branch_checkpoint(const fs::path& checkpoint, const CheckpointStore& store,
                                   const std::function<void(Manifest&)>& change) {
  Result<Manifest> manifest = load_manifest(checkpoint);
  if (!manifest) return manifest.error();
  std::erase_if(manifest->files, [](const FileRecord& file) {  // commit() writes them anew
    return fs::path(file.path).filename() == section_index_file;
  });
  change(*manifest);
  const Result<fs::path> staging = store.begin(StepId(manifest->step), manifest->run.id);
  if (!staging) return staging.error();
  if (const Status linked = link_files(checkpoint, *manifest, *staging, {}); !linked) return linked.error();
  if (const Status flushed = sync_folder(*staging); !flushed) return flushed.error();
  if (const Status committed = store.commit(*staging, *manifest); !committed) return committed.error();
  return store.root() / checkpoint_folder_name(manifest->step, CheckpointKind::complete);
}

}  // namespace maestro
