#include "sections/weights_folder.hpp"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "runtime/core/nearest_name.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

bool is_shard(const fs::path& path) {
  return path.extension() == ".safetensors" && path.filename().string().starts_with("model-");
}

/// Files of a set say of how many: model-00001-of-00003.safetensors.
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

Result<std::vector<fs::path>> weight_files(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return Error{ErrorCode::not_found, folder.string() + ": no such folder of weights"};
  }
  const fs::path whole = folder / "model.safetensors";
  if (fs::exists(whole, error)) return std::vector<fs::path>{whole};
  std::vector<fs::path> shards;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_shard(entry->path())) shards.push_back(entry->path());
  }
  if (error) return Error{ErrorCode::unavailable, folder.string() + ": cannot be listed: " + error.message()};
  if (shards.empty()) {
    return Error{ErrorCode::not_found, folder.string() + ": holds neither model.safetensors nor model-*.safetensors"};
  }
  std::sort(shards.begin(), shards.end());
  if (const Status complete = check_complete(folder, shards); !complete) return complete.error();
  return shards;
}

/// Prefix that a file of the base model leaves out; empty when the name is a full one.
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

}  // namespace

Result<WeightsFolder> WeightsFolder::open(const fs::path& folder) {
  const auto paths = weight_files(folder);
  if (!paths) return paths.error();
  WeightsFolder opened;
  opened.folder_ = folder;
  for (const fs::path& path : *paths) {
    if (const Status added = opened.add(path); !added) return added.error();
  }
  return opened;
}

Status WeightsFolder::add(const fs::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  for (const std::string& name : file->names()) {
    const std::string full = std::string(missing_prefix(name)) + name;
    if (!places_.try_emplace(full, Place{files_.size(), name}).second) {
      return Error{ErrorCode::corrupt, path.string() + ": tensor '" + name + "' is stored twice in this folder"};
    }
  }
  files_.push_back(*std::move(file));
  return {};
}

std::vector<std::string> WeightsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

Result<Tensor> WeightsFolder::tensor(std::string_view name) const {
  const auto found = places_.find(name);
  if (found != places_.end()) return files_[found->second.file].tensor(found->second.stored_name);
  const auto nearest = nearest_name(name, names());
  return Error{ErrorCode::not_found, label() + ": has no tensor '" + std::string(name) + "'" +
                                         (nearest ? "; the nearest is '" + *nearest + "'" : "")};
}

std::string WeightsFolder::label() const {
  return files_.size() == 1 ? files_[0].path().string() : folder_.string();
}

}  // namespace maestro
