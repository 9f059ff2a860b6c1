// SPDX-License-Identifier: Apache-2.0
// Layers other than attention, of LFM2 and Qwen3.5, in config.json of Hugging Face models. Only for sources of
// runtime/model.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/json_value.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

/// Returns the entries of a list, which must have one for each layer. `entries`: what they are, for messages.
[[nodiscard]] std::vector<JsonValue> entries_of_layers(const JsonValue& list, const DecoderConfig& config,
                                                       const char* entries);

/// Returns the columns of LFM2's feed-forward network, which the class may derive from a larger number.
[[nodiscard]] std::int64_t read_lfm2_ffn(const HfKeys& keys);

/// Reads the mixers of families that have convolutions or delta rules; of others nothing. Throws JobError.
void read_hf_mixers(const HfKeys& keys, DecoderConfig& config);
/// Writes keys that read_hf_mixers() reads back as the same mixers.
void write_hf_mixers(const DecoderConfig& config, nlohmann::ordered_json& out);

}  // namespace maestro
