// Private to this folder: names inside a section's part of a checkpoint.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

inline constexpr std::string_view section_config_file = "config.json";
inline constexpr std::string_view section_model_file = "model.safetensors";
inline constexpr std::string_view section_optimizer_file = "optimizer.safetensors";
inline const std::string optimizer_step_key = "optimizer_step";  // in the metadata of optimizer.safetensors

}  // namespace maestro
