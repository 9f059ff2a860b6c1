// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/adapter_config.hpp"

#include <cmath>

#include "runtime/model/hf_keys.hpp"

namespace maestro {

using nlohmann::ordered_json;

namespace {

AdapterConfig read_config(const HfKeys& keys) {
  keys.require_text("peft_type", "", {"LORA"});
  keys.require_text("bias", "none", {"none"});
  for (const char* flag : {"use_rslora", "use_dora", "use_qalora", "lora_bias"}) keys.require_flag(flag, false);
  for (const char* changed : {"rank_pattern", "alpha_pattern"}) {
    const JsonValue pattern = keys.find(changed);
    if (pattern && !pattern.json().empty()) pattern.refuse("is not supported; all modules have the same");
  }
  AdapterConfig config;
  config.rank = keys.size("r");
  config.alpha = keys.positive("lora_alpha", 8);
  config.transposed = keys.flag("fan_in_fan_out", false);
  config.modules = keys.find("target_modules").texts();
  config.base = keys.find("base_model_name_or_path").text("");
  return config;
}

}  // namespace

std::string adapter_config_text(const AdapterConfig& config) {
  const bool whole = config.alpha == std::floor(config.alpha) && config.alpha < 1e9;
  const ordered_json object = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", config.base.empty() ? ordered_json(nullptr) : ordered_json(config.base)},
      {"inference_mode", true},
      {"r", config.rank},
      {"lora_alpha", whole ? ordered_json(static_cast<std::int64_t>(config.alpha)) : ordered_json(config.alpha)},
      {"lora_dropout", 0.0},
      {"bias", "none"},
      {"fan_in_fan_out", config.transposed},
      {"init_lora_weights", true},
      {"target_modules", config.modules}};
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<AdapterConfig> parse_adapter_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, read_config);
}

}  // namespace maestro
