// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/given_model.hpp"

#include <filesystem>
#include <limits>

#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/model/hf_config.hpp"

namespace maestro {

namespace fs = std::filesystem;

std::string model_folder(const char* option, const std::string& name) {
  const auto found = find_model(name);
  if (!found) throw JobError(std::string(option) + ": " + found.error().message, ErrorCode::not_found);
  std::error_code failure;
  if (fs::is_directory(*found, failure)) return fs::absolute(*found).lexically_normal().string();
  throw JobError(std::string(option) + ": " + printable(name) +
                     ": no such folder; give the folder of a model (config.json with model.safetensors), or its name " +
                     "in the hub's cache, such as Qwen/Qwen3-0.6B",
                 ErrorCode::not_found);
}

std::int64_t positions_of(const std::string& folder) {
  const auto config = read_hf_config(folder);
  return config ? config->positions : std::numeric_limits<std::int64_t>::max();
}

}  // namespace maestro
