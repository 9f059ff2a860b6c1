// SPDX-License-Identifier: Apache-2.0
// Latent attention in config.json of Hugging Face models. Only for sources of runtime/model.
#pragma once

#include <string_view>

#include "runtime/core/json_value.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

/// Reads the latents and head sizes of a family that has them, by its class' defaults in transformers 5.24; `config`
/// has heads and kv_heads. `architecture` is the class, for messages. Throws JobError.
void read_hf_latent(const HfKeys& keys, DecoderConfig& config, std::string_view architecture);
/// Writes keys that read_hf_latent() reads back as the same heads.
void write_hf_latent(const DecoderConfig& config, nlohmann::ordered_json& out);

}  // namespace maestro
