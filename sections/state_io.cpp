#include "sections/state_io.hpp"

#include <algorithm>
#include <map>
#include <system_error>

#include "runtime/core/nearest_name.hpp"
#include "sections/model_config.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

using Names = std::map<std::string, Tensor, std::less<>>;

/// The entry's rows as they lie in the flat buffer; a vector stays one.
Tensor part_of(const Parameters& parameters, std::span<float> flat, const StateEntry& entry) {
  const Tensor whole = parameters.part(flat, *entry.parameter);
  if (entry.rows == 0) return whole;
  if (whole.shape().rank() > 1) return whole.row_slice(entry.first_row, entry.rows);
  return {whole.data<float>() + entry.first_row, DType::f32, Shape{entry.rows}};
}

Shape stored_shape(const StateEntry& entry, const Tensor& part) {
  return entry.transposed ? Shape{part.columns(), part.rows()} : part.shape();
}

template <class From>
void copy_into(const Tensor& from, const Tensor& to, bool transposed) {
  const From* source = from.data<From>();
  float* target = to.data<float>();
  if (!transposed) {
    std::transform(source, source + from.elements(), target, [](From value) { return static_cast<float>(value); });
    return;
  }
  const std::int64_t rows = from.rows(), columns = from.columns();
  constexpr std::int64_t tile = 32;  // both sides of a tile stay in the first-level cache
  for (std::int64_t row0 = 0; row0 < rows; row0 += tile) {
    for (std::int64_t column0 = 0; column0 < columns; column0 += tile) {
      for (std::int64_t row = row0; row < std::min(rows, row0 + tile); ++row) {
        for (std::int64_t column = column0; column < std::min(columns, column0 + tile); ++column) {
          target[column * rows + row] = static_cast<float>(source[row * columns + column]);
        }
      }
    }
  }
}

Status check_buffer(Section& section, std::span<float> flat) {
  Parameters& parameters = section.parameters();
  if (flat.empty() || flat.size() != static_cast<std::size_t>(parameters.elements())) {
    return Error{ErrorCode::invalid_argument, "the section has no such state: it is not trained"};
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.value().defined()) continue;
    return Error{ErrorCode::invalid_argument,
                 "'" + parameter.name() + "' was dropped when the section was frozen; store or load before that"};
  }
  return {};
}

Error missing(const std::string& file, const std::string& name, const Names& stored) {
  std::vector<std::string> names;
  for (const auto& [stored_name, tensor] : stored) names.push_back(stored_name);
  const auto nearest = nearest_name(name, names);
  return {ErrorCode::not_found,
          file + ": tensor '" + name + "' is missing" + (nearest ? "; the nearest is '" + *nearest + "'" : "")};
}

Status check_entry(const StateEntry& entry, const Tensor& part, const std::string& name, const Names& stored,
                   const std::string& file) {
  const auto found = stored.find(name);
  if (found == stored.end()) return missing(file, name, stored);
  const Tensor& tensor = found->second;
  const Shape expected = stored_shape(entry, part);
  if (tensor.shape() != expected) {
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' has shape " + tensor.shape().to_string() +
                                                  ", expected " + expected.to_string()};
  }
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::bf16) {
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' is " +
                                                  std::string(name_of(tensor.dtype())) + ", expected fp32 or bf16"};
  }
  return {};
}

Status check_unexpected(const Section& section, const std::vector<StateEntry>& entries, const Names& stored,
                        const std::string& file, std::string_view prefix) {
  std::vector<std::string> expected;
  for (const StateEntry& entry : entries) expected.push_back(std::string(prefix) + entry.name);
  std::vector<std::string> sorted = expected;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [name, tensor] : stored) {
    if (std::binary_search(sorted.begin(), sorted.end(), name)) continue;
    const bool ours = name.starts_with(prefix);
    if (ours && section.ignores(std::string_view(name).substr(prefix.size()))) continue;
    const auto nearest = nearest_name(name, expected);
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' is unexpected" +
                                                  (nearest ? "; the nearest known is '" + *nearest + "'" : "")};
  }
  return {};
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return Error{ErrorCode::unavailable, folder.string() + ": cannot be created: " + error.message()};
}

}  // namespace

Result<TensorSnapshot> export_tensors(Section& section, std::span<float> flat, std::string_view prefix) {
  if (const Status usable = check_buffer(section, flat); !usable) return usable.error();
  constexpr std::size_t alignment = 16;  // elements: each copy starts on a cache line
  const std::vector<StateEntry> entries = section.state();
  std::size_t elements = 0;
  const auto place = [&elements](const Tensor& part) {
    const std::size_t begin = elements;
    elements += (static_cast<std::size_t>(part.elements()) + alignment - 1) / alignment * alignment;
    return begin;
  };
  std::vector<std::size_t> offsets;
  for (const StateEntry& entry : entries) offsets.push_back(place(part_of(section.parameters(), flat, entry)));
  TensorSnapshot snapshot;
  snapshot.memory = AlignedMemory(elements * sizeof(float));
  auto* const memory = reinterpret_cast<float*>(snapshot.memory.data());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Tensor part = part_of(section.parameters(), flat, entries[i]);
    const Tensor copy(memory + offsets[i], DType::f32, stored_shape(entries[i], part));
    copy_into<float>(part, copy, entries[i].transposed);
    snapshot.tensors.push_back({std::string(prefix) + entries[i].name, copy});
  }
  return snapshot;
}

Status import_tensors(Section& section, std::span<float> flat, std::span<const NamedTensor> tensors,
                      const std::string& file, std::string_view prefix) {
  if (const Status usable = check_buffer(section, flat); !usable) {
    return Error{usable.error().code, file + ": " + usable.error().message};
  }
  Names stored;
  for (const NamedTensor& tensor : tensors) stored.emplace(tensor.name, tensor.tensor);
  const std::vector<StateEntry> entries = section.state();
  for (const StateEntry& entry : entries) {  // SI-2: everything is checked before anything is written
    const Tensor part = part_of(section.parameters(), flat, entry);
    const std::string name = std::string(prefix) + entry.name;
    if (const Status fits = check_entry(entry, part, name, stored, file); !fits) return fits;
  }
  if (const Status known = check_unexpected(section, entries, stored, file, prefix); !known) return known;
  for (const StateEntry& entry : entries) {
    const Tensor part = part_of(section.parameters(), flat, entry);
    const Tensor& from = stored.find(std::string(prefix) + entry.name)->second;
    if (from.dtype() == DType::bf16) {
      copy_into<bfloat16>(from, part, entry.transposed);
    } else {
      copy_into<float>(from, part, entry.transposed);
    }
  }
  section.parameters().values_changed();
  return {};
}

Status save_weights(Section& section, const std::filesystem::path& folder) {
  auto snapshot = export_tensors(section, section.parameters().values());
  if (!snapshot) return Error{snapshot.error().code, folder.string() + ": " + snapshot.error().message};
  if (const Status made = make_folder(folder); !made) return made;
  // The mark that readers of the Hugging Face library look for.
  const auto weights = write_safetensors(folder / "model.safetensors", snapshot->tensors, {{"format", "pt"}});
  if (!weights) return weights.error();
  const auto config = write_file(folder / "config.json", section.config_json());
  return config ? Status() : Status(config.error());
}

Status load_weights(Section& section, const std::filesystem::path& folder) {
  if (const Status same = check_same_model(section.config_json(), folder); !same) return same;
  const auto stored = WeightsFolder::open(folder);
  if (!stored) return stored.error();
  std::vector<std::string> own;
  for (const StateEntry& entry : section.state()) own.push_back(entry.name);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : stored->names()) {
    // What is ignored may be of a dtype that cannot be read, such as boolean masks.
    if (section.ignores(name) && std::find(own.begin(), own.end(), name) == own.end()) continue;
    const auto tensor = stored->tensor(name);
    if (!tensor) return tensor.error();
    tensors.push_back({name, *tensor});
  }
  return import_tensors(section, section.parameters().values(), tensors, stored->label());
}

}  // namespace maestro
