// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/model_export.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/state/checkpoint.hpp"
#include "runtime/state/checkpoint_folders.hpp"
#include "runtime/state/hf_export.hpp"
#include "runtime/state/model_files.hpp"
#include "runtime/state/section_files.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// The tensors in their order, cut where a file would hold more than `most` bytes.
std::vector<std::vector<NamedTensor>> shards_of(const std::vector<NamedTensor>& tensors, const ExportOptions& options) {
  std::vector<std::vector<NamedTensor>> shards(1);
  std::uint64_t held = 0;
  for (const NamedTensor& named : tensors) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(named.tensor.elements()) * size_of(*options.dtype);
    if (held + bytes > options.shard_bytes && !shards.back().empty()) {
      shards.emplace_back();
      held = 0;
    }
    shards.back().push_back(named);
    held += bytes;
  }
  return shards;
}

Result<ExportedModel> write_model(const StoredSection& stored, const ExportOptions& options, const fs::path& folder) {
  const auto shards = shards_of(stored.state.parameters, options);
  const auto count = static_cast<std::uint32_t>(shards.size());
  std::map<std::string, std::string> files;  // by tensor
  ExportedModel model{*options.dtype, shards.size(), 0};
  for (std::uint32_t index = 0; index < count; ++index) {
    const std::string file = model_file({index, count});
    for (const NamedTensor& named : shards[index]) {
      files[named.name] = file;
      model.bytes += static_cast<std::uint64_t>(named.tensor.elements()) * size_of(model.dtype);
    }
    const auto written = write_weights(folder / file, shards[index], model.dtype);
    if (!written) return written.error();
  }
  if (count > 1) {
    const auto index = write_file(folder / section_index_file, index_text(files, model.bytes));
    if (!index) return index.error();
  }
  const std::string where = (folder / section_config_file).string();
  const Result<std::string> config = config_with_dtype(stored.state.config, model.dtype, where);
  if (!config) return config.error();
  const auto written = write_file(where, *config);
  if (!written) return written.error();
  return model;
}

/// Of the weights that the section began from.
WeightDtype own_dtype(const Manifest& manifest, std::string_view section) {
  const auto recorded = manifest.dtypes.find(std::string(section));
  if (recorded == manifest.dtypes.end()) return WeightDtype::f32;
  const auto found = std::ranges::find(weight_dtype_names, recorded->second);
  const auto index = found == weight_dtype_names.end() ? 0 : found - weight_dtype_names.begin();
  return static_cast<WeightDtype>(index);
}

Status check_target(const fs::path& to, bool replace) {
  std::error_code failure;
  if (!fs::exists(to, failure)) return {};
  if (!fs::is_directory(to, failure)) {
    return Error{ErrorCode::invalid_argument, "cannot export to " + to.string() + ": it is not a folder"};
  }
  if (replace || fs::is_empty(to, failure)) return {};
  return Error{ErrorCode::invalid_argument, "cannot export to " + to.string() + ": it is not empty; name a new folder"};
}

/// A hidden name beside the target.
fs::path beside(const fs::path& to, const char* ending) {
  return to.parent_path() / ("." + to.filename().string() + ending);
}

/// Puts `staging` in the place of `to`, an empty folder or an earlier export.
Status publish(const fs::path& staging, const fs::path& to) {
  const fs::path old = beside(to, ".old.tmp");
  std::error_code ignored;
  fs::remove_all(old, ignored);
  const bool replaced = std::rename(to.c_str(), old.c_str()) == 0;
  if (std::rename(staging.c_str(), to.c_str()) != 0) {
    const int failure = errno;
    if (replaced) std::rename(old.c_str(), to.c_str());
    return system_error("cannot rename " + staging.string() + " to", to, failure);
  }
  fs::remove_all(old, ignored);
  return sync_folder(to.parent_path().empty() ? "." : to.parent_path());
}

Result<ExportedModel> write_export(const fs::path& checkpoint, std::string_view section, const fs::path& staging,
                                   ExportOptions options) {
  const Result<Manifest> manifest = load_checkpoint(checkpoint);
  if (!manifest) return manifest.error();
  const Result<StoredSection> stored = read_section(checkpoint, section);
  if (!stored) return stored.error();
  if (!options.dtype) options.dtype = own_dtype(*manifest, section);
  std::error_code failure;
  fs::remove_all(staging, failure);
  fs::create_directories(staging, failure);
  if (failure) return system_error("cannot create folder", staging, failure.value());
  const Result<ExportedModel> model = write_model(*stored, options, staging);
  if (!model) return model.error();
  const fs::path source = checkpoint / section;
  if (const Status copied = copy_model_files(source, model_files(source), staging); !copied) return copied.error();
  return *model;
}

}  // namespace

Result<ExportedModel> export_section(const fs::path& checkpoint, std::string_view section, const fs::path& target,
                                     const ExportOptions& options) {
  fs::path to = target.lexically_normal();
  if (!to.has_filename()) to = to.parent_path();  // "models/a/" means "models/a"
  if (const Status free = check_target(to, options.replace); !free) return free.error();
  const fs::path staging = beside(to, ".tmp");
  Result<ExportedModel> model = write_export(checkpoint, section, staging, options);
  if (model) {
    if (const Status published = publish(staging, to); !published) model = published.error();
  }
  std::error_code ignored;
  if (!model) fs::remove_all(staging, ignored);
  return model;
}

Result<CheckpointSection> resolve_section(const fs::path& given) {
  fs::path path = given.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const Result<fs::path> whole = resolve_checkpoint(path, "export");
  if (!whole) {
    const bool checkpoint = parse_checkpoint_folder(path).has_value();
    const Result<fs::path> holder = resolve_checkpoint(path.parent_path(), "export");
    if (checkpoint || !path.has_parent_path() || !holder) return whole.error();
    const std::string section = path.filename().string();
    const Result<Manifest> manifest = load_checkpoint(*holder);
    if (!manifest) return manifest.error();
    if (const Status found = find_section(*holder, *manifest, section); !found) return found.error();
    return CheckpointSection{*holder, section};
  }
  const Result<Manifest> manifest = load_checkpoint(*whole);
  if (!manifest) return manifest.error();
  const std::vector<std::string> sections = manifest->sections();
  if (sections.size() == 1) return CheckpointSection{*whole, sections.front()};
  std::string list;
  for (const std::string& name : sections) list += (list.empty() ? "" : " or ") + (path / name).string();
  return Error{ErrorCode::invalid_argument, "cannot export " + path.string() + ": it has " +
                                                (sections.empty() ? "no sections" : "several sections; name " + list)};
}

}  // namespace maestro
