// SPDX-License-Identifier: Apache-2.0
// Expert layers in config.json of Hugging Face models. Only for sources of runtime/model.
#pragma once

#include "runtime/core/json_value.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

/// Reads the expert layers of a family that has them, by its class' defaults in transformers 5.24; `config` has layers
/// and ffn. Throws JobError.
void read_hf_experts(const HfKeys& keys, DecoderConfig& config);
/// Writes keys that read_hf_experts() reads back as the same layers.
void write_hf_experts(const DecoderConfig& config, nlohmann::ordered_json& out);

}  // namespace maestro
