// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/model_export.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/checkpoint/section_files.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_export.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "runtime/model/model_files.hpp"
#include "runtime/model/weights_fingerprint.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the tensors in order, divided into files of at most `shard_bytes`.
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

/// Returns memory for the tensors of a file, filled by `model`.
Result<AlignedMemory> make_tensors(const MadeModel& model, std::vector<NamedTensor>& tensors) {
  std::size_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += named.tensor.bytes();
  AlignedMemory memory(bytes);
  std::byte* next = memory.data();
  for (NamedTensor& named : tensors) {
    const Tensor values(next, DType::f32, named.tensor.shape());
    next += values.bytes();
    if (Status made = model.make(named.name, values.span<float>()); !made) return made.error();
    named.tensor = values;
  }
  return memory;
}

Result<ExportedModel> write_model(const MadeModel& whole, std::string_view original, const ExportOptions& options,
                                  const fs::path& folder) {
  auto shards = shards_of(whole.tensors, options);
  const auto count = static_cast<std::uint32_t>(shards.size());
  std::map<std::string, std::string> files;  // file by tensor
  ExportedModel model{*options.dtype, shards.size(), 0};
  for (std::uint32_t index = 0; index < count; ++index) {
    const std::string file = model_file({index, count});
    for (const NamedTensor& named : shards[index]) {
      files[named.name] = file;
      model.bytes += static_cast<std::uint64_t>(named.tensor.elements()) * size_of(model.dtype);
    }
    Result<AlignedMemory> made = AlignedMemory();
    if (whole.make) made = make_tensors(whole, shards[index]);
    if (!made) return made.error();
    const auto written = write_weights(folder / file, shards[index], model.dtype, stays_f32);
    if (!written) return written.error();
  }
  if (count > 1) {
    const auto index = write_file(folder / section_index_file, index_text(files, model.bytes));
    if (!index) return index.error();
  }
  const std::string where = (folder / section_config_file).string();
  const Result<std::string> config = config_with_dtype(original, model.dtype, where);
  if (!config) return config.error();
  const auto written = write_file(where, *config);
  if (!written) return written.error();
  return model;
}

/// Returns the dtype of the section's initial weights.
WeightDtype own_dtype(const Manifest& manifest, std::string_view section) {
  const auto recorded = manifest.dtypes.find(std::string(section));
  if (recorded == manifest.dtypes.end()) return WeightDtype::f32;
  const auto found = std::ranges::find(weight_dtype_names, recorded->second);
  const auto index = found == weight_dtype_names.end() ? 0 : found - weight_dtype_names.begin();
  return static_cast<WeightDtype>(index);
}

/// Writes a PEFT folder.
Result<ExportedModel> write_adapters(const StoredSection& stored, const std::string& config, WeightDtype dtype,
                                     const fs::path& folder) {
  ExportedModel model{dtype, 1, 0, true};
  for (const NamedTensor& named : stored.state.parameters) {
    model.bytes += static_cast<std::uint64_t>(named.tensor.elements()) * size_of(dtype);
  }
  const auto weights = write_weights(folder / adapter_file({}), stored.state.parameters, dtype);
  if (!weights) return weights.error();
  const auto written = write_file(folder / adapter_config_file, config);
  if (!written) return written.error();
  return model;
}

/// Checks EX-3.
Status check_base(const Manifest& manifest, std::string_view section, const std::string& base) {
  const std::string begin = "cannot merge the adapters of section " + std::string(section) + ": ";
  if (base.empty()) {
    return Error{ErrorCode::invalid_argument,
                 begin + "the adapted weights are random values, which no folder contains"};
  }
  std::error_code failure;
  if (!fs::is_directory(base, failure)) {
    return Error{ErrorCode::not_found,
                 begin + "the folder " + printable(base) + " of the adapted weights does not exist"};
  }
  const Result<std::string> now = weights_fingerprint(base);
  if (!now) return now.error();
  const auto was = manifest.data.find(weights_key(section));
  if (was != manifest.data.end() && was->second == *now) return {};
  return Error{ErrorCode::invalid_argument,
               begin + "the weights in " + printable(base) + " differ from the weights that they were trained on"};
}

/// Writes a section that trains adapters: only the adapters, or the complete model.
Result<ExportedModel> write_adapted(const StoredSection& stored, const Manifest& manifest, std::string_view section,
                                    const fs::path& staging, const ExportOptions& options) {
  const fs::path file = stored.model.front().path().parent_path() / adapter_config_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const Result<AdapterConfig> config = parse_adapter_config(*text, file.string());
  if (!config) return config.error();
  if (!options.merge) return write_adapters(stored, *text, options.dtype.value_or(WeightDtype::f32), staging);
  if (const Status same = check_base(manifest, section, config->base); !same) return same.error();
  const Result<MadeModel> merged = options.merge(stored, *config);
  if (!merged) return merged.error();
  ExportOptions whole = options;
  if (!whole.dtype) whole.dtype = own_dtype(manifest, section);
  return write_model(*merged, stored.state.config, whole, staging);
}

/// Writes a model of sections that train their weights.
Result<ExportedModel> write_trained(const std::vector<StoredSection>& parts, const Manifest& manifest,
                                    std::string_view section, const fs::path& staging, const ExportOptions& options) {
  if (options.merge) {
    return Error{ErrorCode::invalid_argument,
                 "cannot merge section " + std::string(section) + ": it does not train adapters; leave --merge out"};
  }
  ExportOptions whole = options;
  if (!whole.dtype) whole.dtype = own_dtype(manifest, section);
  MadeModel model;
  for (const StoredSection& part : parts) {
    model.tensors.insert(model.tensors.end(), part.state.parameters.begin(), part.state.parameters.end());
  }
  const auto memory = std::ranges::stable_partition(
      model.tensors, [](const NamedTensor& named) { return !named.name.starts_with(memory_prefix); });
  if (!memory.empty()) {  // other programs load the rest as a decoder
    const std::vector<NamedTensor> of_memory(memory.begin(), memory.end());
    const auto written = write_weights(staging / memory_file, of_memory, *whole.dtype);
    if (!written) return written.error();
    model.tensors.erase(memory.begin(), memory.end());
  }
  return write_model(model, parts.front().state.config, whole, staging);
}

/// Returns whether the config.json names an architecture, so that another program can load a model by it.
bool names_architecture(const std::string& config) {
  const auto parsed = nlohmann::json::parse(config, nullptr, false);
  return parsed.is_object() && parsed.contains("architectures");
}

/// Returns whether no tensor is in two of the sections. Encoders of images and of sounds have the same names.
bool are_disjoint(const std::vector<StoredSection>& sections) {
  std::set<std::pair<Modality, std::string>> names;
  for (const StoredSection& section : sections) {
    const Modality modality = modality_of_config(section.state.config);
    for (const NamedTensor& named : section.state.parameters) {
      if (!names.emplace(modality, named.name).second) return false;
    }
  }
  return true;
}

/// Writes the complete vision-language model of sections (EX-5).
Result<ExportedModel> write_complete(const std::vector<StoredSection>& parts, const fs::path& note,
                                     std::string_view section, const fs::path& staging, const ExportOptions& options) {
  const Result<std::string> text = read_text(note);
  if (!text) return text.error();
  const auto parsed = nlohmann::json::parse(*text, nullptr, false);
  if (!parsed.is_object()) return Error{ErrorCode::corrupt, note.string() + ": is not a JSON object"};
  const std::string folder = parsed.value("folder", "");
  const auto refused = [&](const std::string& problem) {
    return Error{ErrorCode::invalid_argument, "cannot export section " + std::string(section) + ": " + problem +
                                                  "; maestro export --text writes only its language model"};
  };
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) {
    return refused("the folder " + printable(folder) + " of its complete model does not exist");
  }
  const Result<std::string> now = weights_fingerprint(folder);
  if (!now) return now.error();
  if (parsed.value("weights", "") != *now) {
    return refused("the weights in " + printable(folder) + " have changed since the run began");
  }
  ExportedModel model;
  const Status written = options.complete(parts, folder, staging, model);
  if (!written) return written.error();
  if (!options.dtype || *options.dtype == model.dtype) return model;
  return refused("its complete model keeps the dtype of " + printable(folder) + ", " +
                 std::string(name_of(model.dtype)));
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

/// Returns a hidden name next to the target.
fs::path beside(const fs::path& to, const char* ending) {
  return to.parent_path() / ("." + to.filename().string() + ending);
}

/// Replaces `to`, an empty folder or an earlier export, by `staging`.
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
                                   const ExportOptions& options) {
  const Result<Manifest> manifest = load_checkpoint(checkpoint);
  if (!manifest) return manifest.error();
  const bool complete = static_cast<bool>(options.complete);
  const Result<std::vector<std::string>> sections = sections_of_model(checkpoint, section, complete);
  if (!sections) return sections.error();
  std::vector<StoredSection> parts;
  for (const std::string& name : *sections) {
    Result<StoredSection> stored = read_section(checkpoint, name);
    if (!stored) return stored.error();
    parts.push_back(*std::move(stored));
  }
  std::error_code failure;
  fs::remove_all(staging, failure);
  fs::create_directories(staging, failure);
  if (failure) return system_error("cannot create folder", staging, failure.value());
  const fs::path note = checkpoint / section / whole_model_file;
  if (options.complete && !parts.front().state.adapters && fs::exists(note, failure)) {
    return write_complete(parts, note, section, staging, options);
  }
  const Result<ExportedModel> model = parts.front().state.adapters
                                          ? write_adapted(parts.front(), *manifest, section, staging, options)
                                          : write_trained(parts, *manifest, section, staging, options);
  if (!model) return model.error();
  for (const std::string& name : *sections) {
    const fs::path source = checkpoint / name;
    std::vector<std::string> files = model_files(source);
    std::erase(files, whole_model_file);
    if (const Status copied = copy_model_files(source, files, staging); !copied) return copied.error();
  }
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

Result<std::vector<std::string>> sections_of_model(const fs::path& checkpoint, std::string_view section,
                                                   bool complete) {
  const Result<Manifest> manifest = load_checkpoint(checkpoint);
  if (!manifest) return manifest.error();
  if (const Status found = find_section(checkpoint, *manifest, section); !found) return found.error();
  const std::vector<std::string> alone{std::string(section)};
  std::error_code failure;
  const bool part = complete && fs::exists(checkpoint / section / whole_model_file, failure);
  const std::string_view shared = part ? whole_model_file : section_config_file;  // equal in all sections of the model
  const Result<std::string> config = read_text(checkpoint / section / shared);
  if (!config) return config.error();
  if (has_adapters(*manifest, section) || !(part || names_architecture(*config))) return alone;
  std::vector<std::string> names;
  std::vector<StoredSection> parts;
  std::vector<std::string> sections = manifest->sections();
  std::ranges::sort(sections);  // the manifest has the order of their writers
  for (const std::string& name : sections) {
    if (part && !fs::exists(checkpoint / name / shared, failure)) continue;
    const Result<std::string> other = read_text(checkpoint / name / shared);
    if (!other) return other.error();
    if (*other != *config || has_adapters(*manifest, name)) continue;
    Result<StoredSection> stored = map_section(checkpoint, *manifest, name);
    if (!stored) return stored.error();
    names.push_back(name);
    parts.push_back(*std::move(stored));
  }
  return are_disjoint(parts) ? names : alone;
}

std::string joined_names(const std::vector<std::string>& sections) {
  std::string joined;
  for (const std::string& name : sections) joined += (joined.empty() ? "" : "+") + name;
  return joined;
}

std::string way_to_whole_model(const fs::path& folder) {
  const fs::path checkpoint = folder.parent_path();
  std::error_code failure;
  if (!fs::exists(checkpoint / manifest_file, failure)) return {};
  const auto sections = sections_of_model(checkpoint, folder.filename().string(), false);
  if (!sections || sections->size() < 2) return {};
  return "; the model is in the sections " + joined_names(*sections) + ": maestro export " + folder.string() +
         " --to DIR writes it as one folder";
}

Result<CheckpointSection> resolve_section(const fs::path& given, bool complete) {
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
  if (!sections.empty()) {
    const Result<std::vector<std::string>> model = sections_of_model(*whole, sections.front(), complete);
    if (!model) return model.error();
    if (model->size() == sections.size()) return CheckpointSection{*whole, sections.front()};
  }
  std::string list;
  for (const std::string& name : sections) list += (list.empty() ? "" : " or ") + (path / name).string();
  return Error{ErrorCode::invalid_argument, "cannot export " + path.string() + ": it has " +
                                                (sections.empty() ? "no sections" : "several sections; name " + list)};
}

}  // namespace maestro
