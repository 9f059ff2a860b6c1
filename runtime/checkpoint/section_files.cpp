// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/section_files.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view model_stem = "model";
constexpr std::string_view adapter_stem = "adapter_model";
constexpr std::string_view optimizer_stem = "optimizer";
constexpr std::string_view extension = ".safetensors";

std::string file_of(std::string_view stem, StatePart part) {
  std::string name(stem);
  if (part.count > 1) {
    char numbers[32];
    std::snprintf(numbers, sizeof numbers, "-%05u-of-%05u", part.index + 1, part.count);
    name += numbers;
  }
  return name.append(extension);
}

/// Returns the part of `stem` that a file is; nothing if file_of never makes its name.
std::optional<StatePart> part_of(std::string_view stem, std::string_view file) {
  if (file == file_of(stem, {})) return StatePart{};
  std::string_view rest = file;
  const auto skip = [&](std::string_view text) {
    const bool there = rest.starts_with(text);
    if (there) rest.remove_prefix(text.size());
    return there;
  };
  const auto number = [&](std::uint32_t& value) {
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (failure != std::errc()) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
  };
  std::uint32_t place = 0;
  StatePart part;
  const bool read = skip(stem) && skip("-") && number(place) && skip("-of-") && number(part.count);
  if (!read || place < 1 || place > part.count || part.count < 2) return std::nullopt;
  part.index = place - 1;
  // A part has exactly one file name: "model-1-of-2.safetensors" is not a file of maestro.
  if (file != file_of(stem, part)) return std::nullopt;
  return part;
}

/// Returns the section's files with `stem` in the manifest, sorted.
std::vector<StatePart> parts_of(const Manifest& manifest, std::string_view section, std::string_view stem) {
  const std::string prefix = std::string(section) + "/";
  std::vector<StatePart> parts;
  for (const FileRecord& record : manifest.files) {
    if (!record.path.starts_with(prefix)) continue;
    if (const auto part = part_of(stem, std::string_view(record.path).substr(prefix.size()))) parts.push_back(*part);
  }
  std::ranges::sort(parts, {}, [](StatePart part) { return std::pair(part.count, part.index); });
  return parts;
}

/// A checkpoint's section, for errors.
struct Place {
  fs::path checkpoint;
  std::string section;
  [[nodiscard]] fs::path folder() const { return checkpoint / section; }
  [[nodiscard]] Error corrupt(const std::string& what) const {
    return {ErrorCode::corrupt, folder().string() + ": section " + section + " " + what};
  }
};

/// Checks SF-1 for the files with a stem: no part is missing, duplicate or from another count. Returns their number.
Result<std::uint32_t> count_parts(const std::vector<StatePart>& parts, std::string_view stem, const Place& place) {
  if (parts.empty()) return place.corrupt("lacks " + file_of(stem, {}) + " or its parts");
  const std::uint32_t count = parts.front().count;
  if (parts.back().count != count) {
    return place.corrupt("has both " + file_of(stem, parts.front()) + " and " + file_of(stem, parts.back()) +
                         "; its parts were not written together");
  }
  const auto twice = std::ranges::adjacent_find(parts, {}, &StatePart::index);
  if (twice != parts.end()) return place.corrupt("has two records of " + file_of(stem, *twice));
  for (std::uint32_t index = 0; index < count; ++index) {
    if (index < parts.size() && parts[index].index == index) continue;
    return place.corrupt("lacks part " + std::to_string(index + 1) + " of " + std::to_string(count) + ", " +
                         file_of(stem, {index, count}));
  }
  return count;
}

Result<std::vector<SafetensorsFile>> open_parts(std::string_view stem, std::uint32_t count, const Place& place) {
  std::vector<SafetensorsFile> files;
  for (std::uint32_t index = 0; index < count; ++index) {
    Result<SafetensorsFile> file = SafetensorsFile::open(place.folder() / file_of(stem, {index, count}));
    if (!file) return file.error();
    files.push_back(*std::move(file));
  }
  return files;
}

/// Returns all tensors of the files in order; a duplicate is an error (SF-2).
Result<std::vector<NamedTensor>> merged(const std::vector<SafetensorsFile>& files, const Place& place) {
  std::vector<NamedTensor> all;
  std::map<std::string, const SafetensorsFile*, std::less<>> holders;
  for (const SafetensorsFile& file : files) {
    Result<std::vector<NamedTensor>> tensors = file.tensors();
    if (!tensors) return tensors.error();
    for (NamedTensor& tensor : *tensors) {
      const auto [holder, first] = holders.emplace(tensor.name, &file);
      if (!first) {
        return place.corrupt("has tensor " + printable(tensor.name) + " in two parts, " +
                             holder->second->path().filename().string() + " and " + file.path().filename().string());
      }
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

Result<std::uint64_t> optimizer_step_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find(optimizer_step_key);
  std::uint64_t step = 0;
  if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), step);
    if (failure == std::errc() && end == text.data() + text.size()) return step;
  }
  return Error{ErrorCode::corrupt, file.path().string() + " lacks optimizer_step"};
}

/// Returns the common step of all files, at least one (SF-2).
Result<std::uint64_t> common_step(const std::vector<SafetensorsFile>& files, const Place& place) {
  const Result<std::uint64_t> first = optimizer_step_of(files.front());
  if (!first) return first.error();
  for (const SafetensorsFile& file : files) {
    const Result<std::uint64_t> step = optimizer_step_of(file);
    if (!step) return step.error();
    if (*step == *first) continue;
    return place.corrupt("has parts of different steps: " + files.front().path().filename().string() +
                         " has optimizer_step " + std::to_string(*first) + ", " + file.path().filename().string() +
                         " has " + std::to_string(*step));
  }
  return *first;
}

}  // namespace

std::string model_file(StatePart part) {
  return file_of(model_stem, part);
}

std::string adapter_file(StatePart part) {
  return file_of(adapter_stem, part);
}

std::string optimizer_file(StatePart part) {
  return file_of(optimizer_stem, part);
}

std::string earlier_weights_file(std::uint64_t step, StatePart part) {
  char number[32];
  std::snprintf(number, sizeof number, "versions/%08llu", static_cast<unsigned long long>(step));
  return file_of(number, part);
}

std::vector<std::string> earlier_weights_files(const Manifest& manifest, std::string_view section, std::uint64_t step) {
  const std::string folder = std::string(section) + "/";
  const auto listed = [&](const std::string& file) {
    return std::ranges::find(manifest.files, folder + file, &FileRecord::path) != manifest.files.end();
  };
  if (const std::string whole = earlier_weights_file(step, {}); listed(whole)) return {folder + whole};
  for (const FileRecord& record : manifest.files) {
    const std::string number = earlier_weights_file(step, {});
    const std::string stem = folder + number.substr(0, number.size() - extension.size());
    if (!record.path.starts_with(stem)) continue;
    const std::optional<StatePart> part = part_of(stem, record.path);
    if (!part) continue;
    std::vector<std::string> files;
    for (std::uint32_t index = 0; index < part->count; ++index) {
      const std::string file = earlier_weights_file(step, {index, part->count});
      if (!listed(file)) return {};
      files.push_back(folder + file);
    }
    return files;
  }
  return {};
}

bool has_adapters(const Manifest& manifest, std::string_view section) {
  return !parts_of(manifest, section, adapter_stem).empty();
}

bool is_in_parts(const Manifest& manifest, std::string_view section) {
  const auto is_part = [](StatePart part) { return part.count > 1; };
  const std::string_view stem = has_adapters(manifest, section) ? adapter_stem : model_stem;
  return std::ranges::any_of(parts_of(manifest, section, stem), is_part) ||
         std::ranges::any_of(parts_of(manifest, section, optimizer_stem), is_part);
}

Result<StoredSection> map_section(const fs::path& checkpoint, const Manifest& manifest, std::string_view section) {
  const Place place{checkpoint, std::string(section)};
  const bool adapters = has_adapters(manifest, section);
  const std::string_view stem = adapters ? adapter_stem : model_stem;
  const auto models = count_parts(parts_of(manifest, section, stem), stem, place);
  if (!models) return models.error();
  const auto optimizers = count_parts(parts_of(manifest, section, optimizer_stem), optimizer_stem, place);
  if (!optimizers) return optimizers.error();
  if (*models != *optimizers) {
    return place.corrupt("has " + std::to_string(*models) + " model and " + std::to_string(*optimizers) +
                         " optimizer files; the numbers must be equal");
  }
  Result<std::string> config = read_text(place.folder() / section_config_file);
  if (!config) return config.error();
  Result<std::vector<SafetensorsFile>> model = open_parts(stem, *models, place);
  if (!model) return model.error();
  Result<std::vector<SafetensorsFile>> optimizer = open_parts(optimizer_stem, *optimizers, place);
  if (!optimizer) return optimizer.error();
  Result<std::vector<NamedTensor>> parameters = merged(*model, place);
  if (!parameters) return parameters.error();
  Result<std::vector<NamedTensor>> moments = merged(*optimizer, place);
  if (!moments) return moments.error();
  const Result<std::uint64_t> step = common_step(*optimizer, place);
  if (!step) return step.error();
  SectionState state{*std::move(config), *std::move(parameters), *std::move(moments), *step, {}, adapters};
  return StoredSection{std::move(state), *std::move(model), *std::move(optimizer)};
}

std::string index_text(const std::map<std::string, std::string>& files, std::uint64_t total_bytes) {
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", files}};
  return index.dump(2) + "\n";
}

Result<std::string> index_text(const StoredSection& section) {
  std::uint64_t total_bytes = 0;
  std::map<std::string, std::string> files;
  for (const SafetensorsFile& file : section.model) {
    const Result<std::vector<NamedTensor>> tensors = file.tensors();
    if (!tensors) return tensors.error();
    for (const auto& [name, tensor] : *tensors) {
      total_bytes += tensor.bytes();
      files[name] = file.path().filename().string();
    }
  }
  return index_text(files, total_bytes);
}

Status find_section(const fs::path& checkpoint, const Manifest& manifest, std::string_view section) {
  const std::vector<std::string> names = manifest.sections();
  if (std::ranges::find(names, section) != names.end()) return {};
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + printable(name);
  const auto nearest = nearest_name(section, names);
  return Error{ErrorCode::not_found, "checkpoint " + checkpoint.string() + " has no section " + std::string(section) +
                                         "; it has " + (known.empty() ? "none" : known) +
                                         (nearest ? "; the nearest is " + printable(*nearest) : "")};
}

}  // namespace maestro
