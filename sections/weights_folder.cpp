// SPDX-License-Identifier: Apache-2.0
#include "sections/weights_folder.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <system_error>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/adapter_config.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_stack.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

/// Ends of names: tensors that hold all experts of a layer.
constexpr std::string_view fused_gate_up = ".experts.gate_up_proj", fused_down = ".experts.down_proj";

/// End of names: blocks in MXFP4.
constexpr std::string_view blocks_end = "_blocks";

constexpr const char* adapters_instead =
    " holds adapters; `maestro export --merge` makes a whole model of them and the weights below";

/// Returns whether a folder is an export of a section that trains adapters.
bool holds_adapters_alone(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / adapter_config_file, error) && !fs::exists(folder / "config.json", error);
}

bool is_shard(const fs::path& path) {
  return path.extension() == ".safetensors" && path.filename().string().starts_with("model-");
}

/// Checks that a set is complete. The names of its files contain their number: model-00001-of-00003.safetensors.
Status check_complete(const fs::path& folder, const std::vector<fs::path>& shards) {
  const std::string first = shards.front().stem().string();
  const std::size_t of = first.rfind("-of-");
  if (of == std::string::npos) return {};
  const std::string count = first.substr(of + 4);
  for (std::size_t number = 1; number <= std::strtoul(count.c_str(), nullptr, 10); ++number) {
    std::string digits = std::to_string(number);
    digits.insert(0, count.size() - std::min(count.size(), digits.size()), '0');
    const fs::path wanted = folder / ("model-" + digits + "-of-" + count + ".safetensors");
    if (std::ranges::find(shards, wanted) != shards.end()) continue;
    return Error{ErrorCode::not_found, wanted.string() + " is missing; the folder holds " +
                                           std::to_string(shards.size()) + " of " + count + " files of weights"};
  }
  return {};
}

/// Returns the files that an index names, after checking that all exist.
Result<std::vector<fs::path>> indexed_files(const fs::path& folder, const WeightMap& index) {
  std::vector<fs::path> files;
  for (const std::string& name : files_of(index)) {
    files.push_back(folder / name);
    std::error_code error;
    if (fs::exists(files.back(), error)) continue;
    return Error{ErrorCode::not_found,
                 files.back().string() + " is missing; " + std::string(hf_index_file) + " names it"};
  }
  return files;
}

/// Refuses model.safetensors next to another file of weights, which transformers would ignore: either may be stale.
Status check_whole_alone(const fs::path& whole, const WeightMap& index, const std::vector<fs::path>& shards) {
  std::set<std::string> others = files_of(index);
  others.erase(whole.filename().string());
  std::error_code error;
  std::erase_if(others, [&](const std::string& name) { return !fs::exists(whole.parent_path() / name, error); });
  for (const fs::path& shard : shards) others.insert(shard.filename().string());
  if (others.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               whole.string() + " stands next to " + printable(*others.begin()) +
                   ", another file of weights: one of the two is stale; remove it (transformers reads " +
                   "model.safetensors)"};
}

Result<std::vector<fs::path>> shards_of(const fs::path& folder) {
  std::vector<fs::path> shards;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_shard(entry->path())) shards.push_back(entry->path());
  }
  if (error) return Error{ErrorCode::unavailable, folder.string() + ": cannot be listed: " + error.message()};
  std::sort(shards.begin(), shards.end());
  return shards;
}

Result<std::vector<fs::path>> weight_files(const fs::path& folder, const WeightMap& index) {
  std::error_code error;
  const auto shards = shards_of(folder);
  if (!shards) return shards.error();
  const fs::path whole = folder / "model.safetensors";
  if (fs::exists(whole, error)) {
    if (const Status alone = check_whole_alone(whole, index, *shards); !alone) return alone.error();
    return std::vector<fs::path>{whole};
  }
  if (!index.empty()) return indexed_files(folder, index);
  if (shards->empty() && fs::exists(folder / adapter_config_file, error)) {
    return Error{ErrorCode::invalid_argument, folder.string() + adapters_instead};
  }
  if (shards->empty()) {
    return Error{ErrorCode::not_found, folder.string() + ": holds neither model.safetensors nor model-*.safetensors"};
  }
  if (const Status complete = check_complete(folder, *shards); !complete) return complete.error();
  return shards;
}

/// Returns the prefix that a file of the base model leaves out; empty if the name is complete.
std::string_view missing_prefix(std::string_view name) {
  for (const std::string_view gpt2 : {"wte.", "wpe.", "h.", "ln_f."}) {
    if (name.starts_with(gpt2)) return "transformer.";
  }
  for (const std::string_view vision : {"embeddings.", "encoder.", "post_layernorm.", "head."}) {
    if (name.starts_with(vision)) return "vision_model.";
  }
  for (const std::string_view llama : {"embed_tokens.", "layers.", "norm."}) {
    if (name.starts_with(llama)) return "model.";
  }
  return {};
}

std::vector<float> values_of(const ConstTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  if (tensor.dtype() == DType::bf16) {
    std::ranges::transform(tensor.span<bfloat16>(), values.begin(), [](bfloat16 value) { return float(value); });
  } else if (tensor.dtype() == DType::f32) {
    std::ranges::copy(tensor.span<float>(), values.begin());
  }
  return values;
}

/// Returns the shape with `count` sizes of 1 more at its start, or with as many sizes less.
Shape with_ones(const Shape& shape, int count) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(std::max(count, 0)), 1);
  for (int axis = std::max(-count, 0); axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return Shape::of(sizes);
}

bool same_values(const ConstTensor& a, const ConstTensor& b) {
  if (a.shape() != b.shape()) return false;
  if (a.dtype() == b.dtype()) return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  return values_of(a) == values_of(b);
}

}  // namespace

std::string read_weights_folder(const JobTable& section) {
  const std::string path = read_model(section, "weights", "");
  if (path.empty() || path == random_weights) return "";
  std::error_code error;
  if (holds_adapters_alone(path)) section.fail("weights", printable(path) + adapters_instead);
  if (fs::is_directory(path, error)) return path;
  if (fs::exists(path, error)) {
    const fs::path parent = fs::path(path).parent_path();
    section.fail("weights", printable(path) + " is a file; name the folder that holds it and config.json: \"" +
                                (parent.empty() ? "." : printable(parent.string())) + "\"");
  }
  section.fail("weights", printable(path) +
                              ": no such folder; weights are a folder with config.json and model.safetensors, such " +
                              "as `hf download NAME --local-dir DIR` makes, or \"random\"");
}

Result<WeightsFolder> WeightsFolder::open(const fs::path& folder, ModelPart part) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return Error{ErrorCode::not_found, printable(folder.string()) + ": no such folder of weights"};
  }
  Result<WeightMap> index = read_hf_index(folder);
  if (!index) return index.error();
  const auto paths = weight_files(folder, *index);
  if (!paths) return paths.error();
  if (paths->size() == 1 && paths->front().filename() == "model.safetensors") index->clear();
  WeightsFolder opened;
  opened.folder_ = folder;
  opened.part_ = part;
  opened.whole_ = vision_language_type(folder);
  for (const fs::path& path : *paths) {
    if (const Status added = opened.add(path, *index); !added) return added.error();
  }
  if (part == ModelPart::language_model && fs::exists(folder / memory_file, error)) {
    if (const Status added = opened.add(folder / memory_file, {}); !added) return added.error();
  }
  if (const Status joined = opened.join_tied(); !joined) return joined.error();
  if (const Status split = opened.split_experts(); !split) return split.error();
  if (const Status blocks = opened.join_blocks(); !blocks) return blocks.error();
  return opened;
}

Status WeightsFolder::join_tied() {
  const auto head = places_.find(head_name);
  if (head == places_.end()) return {};
  const auto config = read_hf_config(folder_);
  if (!config || !config->tied) return {};
  const std::string table(embedding_name(*config));
  if (places_.try_emplace(table, head->second).second) return {};
  const auto one = tensor(table), other = tensor(head_name);
  if (!one) return one.error();
  if (!other) return other.error();
  const bool same = same_values(*one, *other);
  release(table);
  release(head_name);
  if (same) return {};
  return Error{ErrorCode::invalid_argument,
               label() + ": " + std::string(head_name) + " differs from " + table +
                   ", but tie_word_embeddings is true" + (config->gpt2() ? " (as when it is left out)" : "") +
                   "; set it to false in config.json if the model has an output layer of its own, or remove " +
                   std::string(head_name)};
}

Status WeightsFolder::split_experts() {
  const auto fused = [](std::string_view name) { return name.ends_with(fused_gate_up) || name.ends_with(fused_down); };
  std::vector<std::string> found = names();
  std::erase_if(found, std::not_fn(fused));
  if (found.empty()) return {};
  const auto config = read_hf_config(folder_);
  if (!config) return config.error();
  if (!has_experts(config->family)) return {};  // unexpected tensors are refused by name
  const ExpertNames expert_name = expert_names(config->family);
  if (expert_name.transposed) return {};
  for (const std::string& name : found) {
    const Place place = places_.find(name)->second;
    const auto described = this->described(name);
    if (!described) return described.error();
    const Shape& shape = described->shape();
    const bool in = name.ends_with(fused_gate_up);
    if (shape.rank() != 3 || (in && shape[1] % 2 != 0)) {
      return Error{ErrorCode::invalid_argument, label() + ": tensor '" + name + "' has shape " + shape.to_string() +
                                                    ", expected (experts, " + (in ? "2 ffn, width)" : "width, ffn)")};
    }
    const std::string fused_block = name.substr(0, name.size() - (in ? fused_gate_up : fused_down).size());
    if (!fused_block.ends_with(expert_name.fused_block)) continue;
    const std::string layer = fused_block.substr(0, fused_block.size() - expert_name.fused_block.size());
    const std::string block = layer + std::string(expert_name.block);
    const auto parts = in ? std::vector{expert_name.gate, expert_name.up} : std::vector{expert_name.down};
    const std::int64_t rows = shape[1] / std::ssize(parts);
    std::int64_t row = 0;
    for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
      for (const std::string_view part : parts) {
        const std::string own = block + ".experts." + std::to_string(expert) + "." + std::string(part) + ".weight";
        if (!places_.try_emplace(own, Place{place.file, place.stored_name, 0, row, rows}).second) {
          return Error{ErrorCode::corrupt, label() + ": tensor '" + own + "' is stored twice, also in '" + name + "'"};
        }
        row += rows;
      }
    }
    places_.erase(name);
    // In this form the router has the name of other families' too.
    const auto router = places_.find(fused_block + ".gate.weight");
    if (fused_block == block || router == places_.end()) continue;
    const Place moved = router->second;
    places_.erase(router);
    places_.try_emplace(block + ".gate.weight", moved);
  }
  return {};
}

Status WeightsFolder::join_blocks() {
  for (const std::string& name : names()) {
    if (!name.ends_with(blocks_end)) continue;
    const auto described = this->described(name);
    if (!described) return described.error();
    const Shape& shape = described->shape();
    if (described->dtype() != DType::u8) continue;
    const std::string base = name.substr(0, name.size() - blocks_end.size()), scales = base + "_scales";
    const auto scales_place = places_.find(scales);
    if (scales_place == places_.end()) return unknown(scales);
    const auto factors = this->described(scales);
    if (!factors) return factors.error();
    if (shape.rank() != 4 || shape[3] != mxfp4_bytes || factors->dtype() != DType::u8 ||
        factors->shape() != Shape{shape[0], shape[1], shape[2]}) {
      return Error{ErrorCode::invalid_argument, label() + ": tensors '" + name + "' " + shape.to_string() + " and '" +
                                                    scales + "' " + factors->shape().to_string() +
                                                    " have other shapes than blocks (groups, rows, n, 16) and "
                                                    "scales (groups, rows, n), both U8, of MXFP4"};
    }
    const auto place = places_.find(name);
    Place joined = place->second;
    joined.scales = scales_place->second.stored_name;
    joined.scales_file = scales_place->second.file;
    places_.erase(place);
    places_.erase(scales_place);
    if (places_.try_emplace(base, joined).second) continue;
    return Error{ErrorCode::corrupt, label() + ": tensor '" + base + "' is stored twice, also in '" + name + "'"};
  }
  return {};
}

Status WeightsFolder::add(const fs::path& path, const WeightMap& index) {
  auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  for (const auto& [name, holder] : index) {
    if (holder != path.filename() || file->contains(name)) continue;
    return Error{ErrorCode::corrupt, path.string() + " has no tensor '" + printable(name) + "'; " +
                                         std::string(hf_index_file) + " names it there"};
  }
  for (const std::string& name : file->names()) {
    const auto indexed = index.find(name);
    if (indexed != index.end() && indexed->second != path.filename()) continue;
    const Result<PartName> full = full_name(name, path);
    if (!full) return full.error();
    if (full->part != part_) continue;
    if (!places_.try_emplace(full->name, Place{files_.size(), name, full->leading_ones}).second) {
      return Error{ErrorCode::corrupt,
                   path.string() + ": tensor '" + printable(name) + "' is stored twice in this folder"};
    }
  }
  files_.push_back(*std::move(file));
  return {};
}

Result<PartName> WeightsFolder::full_name(const std::string& stored, const fs::path& file) const {
  if (whole_.empty()) return PartName{part_, std::string(missing_prefix(stored)) + stored};
  const std::optional<PartName> found = part_name(whole_, stored);
  if (found) return *found;
  return Error{ErrorCode::invalid_argument, file.string() + ": tensor '" + printable(stored) +
                                                "' belongs to no known part of a " + whole_ + " model"};
}

std::vector<std::string> WeightsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

Error WeightsFolder::unknown(std::string_view name) const {
  const auto nearest = nearest_name(name, names());
  return {ErrorCode::not_found, label() + ": has no tensor '" + std::string(name) + "'" +
                                    (nearest ? "; the nearest is '" + *nearest + "'" : "")};
}

Result<ConstTensor> WeightsFolder::own_shape(const Place& place, Result<ConstTensor> stored) const {
  if (stored && place.rows > 0) return ConstTensor(nullptr, stored->dtype(), Shape{place.rows, stored->columns()});
  if (!stored || place.leading_ones == 0) return stored;
  const Shape& shape = stored->shape();
  const Shape own = with_ones(shape, -place.leading_ones);
  if (own.rank() > 0 && with_ones(own, place.leading_ones) == shape) return stored->reshaped(own);
  return Error{ErrorCode::invalid_argument, files_[place.file].path().string() + ": tensor '" + place.stored_name +
                                                "' has shape " + shape.to_string() + ", expected the first " +
                                                std::to_string(place.leading_ones) + " sizes to be 1"};
}

Result<ConstTensor> WeightsFolder::tensor(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return unknown(name);
  if (!found->second.scales.empty()) {
    return Error{ErrorCode::invalid_argument, label() + ": '" + std::string(name) +
                                                  "' is in MXFP4, which is not read here; save the model in bf16 "
                                                  "first, as with `maestro export`"};
  }
  const Place& place = found->second;
  const SafetensorsFile& file = files_[place.file];
  if (place.rows > 0) return file.rows(place.stored_name, place.first_row, place.rows);
  return own_shape(place, file.tensor(place.stored_name));
}

Result<std::optional<Mxfp4Rows>> WeightsFolder::blocks(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return unknown(name);
  const Place& place = found->second;
  if (place.scales.empty()) return std::optional<Mxfp4Rows>();
  const auto blocks = files_[place.file].tensor(place.stored_name);
  if (!blocks) return blocks.error();
  const auto scales = files_[place.scales_file].tensor(place.scales);
  if (!scales) return scales.error();
  const Shape& shape = scales->shape();
  return std::optional<Mxfp4Rows>(
      {blocks->data<std::uint8_t>(), scales->data<std::uint8_t>(), shape[0] * shape[1], shape[2] * mxfp4_block});
}

Result<ConstTensor> WeightsFolder::described(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return unknown(name);
  auto stored = files_[found->second.file].described(found->second.stored_name);
  if (!stored || found->second.scales.empty()) return own_shape(found->second, std::move(stored));
  const Shape& blocks = stored->shape();
  return ConstTensor(nullptr, DType::bf16, Shape{blocks[0], blocks[2] * mxfp4_block, blocks[1]});
}

void WeightsFolder::release(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return;
  const Place& place = found->second;
  files_[place.file].release(place.stored_name);
  if (!place.scales.empty()) files_[place.scales_file].release(place.scales);
}

Result<std::vector<WeightsFolder::Change>> WeightsFolder::changes(const std::vector<NamedTensor>& tensors) const {
  std::vector<Change> changes;
  const auto change = [&](const Place& place, const ConstTensor& values) {
    assert(place.rows == 0);
    const Shape stored = with_ones(values.shape(), place.leading_ones);
    changes.push_back({place.file, place.stored_name, values.reshaped(stored)});
  };
  const auto head = places_.find(head_name);
  std::string twice;  // name of a table that is stored a second time
  if (head != places_.end()) {
    const auto config = read_hf_config(folder_);
    if (!config) return config.error();
    if (config->tied) twice = embedding_name(*config);
  }
  for (const auto& [name, values] : tensors) {
    const auto found = places_.find(name);
    if (found == places_.end()) return unknown(name);
    if (!found->second.scales.empty()) {
      return Error{ErrorCode::invalid_argument,
                   label() + ": '" + name +
                       "' is in MXFP4, in which it cannot be written; save the model in bf16 "
                       "first, as with `maestro export`"};
    }
    if (found->second.rows > 0) {
      return Error{ErrorCode::invalid_argument,
                   label() + ": '" + name + "' is a part of '" + found->second.stored_name +
                       "', which cannot be written in this form; save the model with a tensor for each expert first"};
    }
    change(found->second, values);
    if (name == twice) change(head->second, values);
  }
  return changes;
}

Status WeightsFolder::copy_changed(const fs::path& to, const std::vector<Change>& changes) const {
  std::vector<std::map<std::string, ConstTensor, std::less<>>> changed(files_.size());
  for (const Change& change : changes) changed[change.file].emplace(change.stored_name, change.values);
  for (std::size_t at = 0; at < files_.size(); ++at) {
    const Status copied = files_[at].copy_changed(to / files_[at].path().filename(), changed[at]);
    if (!copied) return copied;
  }
  return {};
}

std::uint64_t WeightsFolder::bytes() const {
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [dtype, held] : file.bytes_by_dtype()) bytes += held;
  }
  return bytes;
}

WeightDtype WeightsFolder::dtype() const {
  constexpr std::array<std::string_view, 3> names{"F32", "BF16", "F16"};
  std::array<std::uint64_t, 3> bytes{};
  for (const SafetensorsFile& file : files_) {
    for (const auto& [dtype, held] : file.bytes_by_dtype()) {
      const auto name = std::ranges::find(names, dtype);
      if (name != names.end()) bytes[static_cast<std::size_t>(name - names.begin())] += held;
    }
  }
  return static_cast<WeightDtype>(std::ranges::max_element(bytes) - bytes.begin());
}

std::string WeightsFolder::label() const {
  return files_.size() == 1 ? files_[0].path().string() : folder_.string();
}

}  // namespace maestro
