// SPDX-License-Identifier: Apache-2.0
// config.json of each decoder family, to and from DecoderConfig. Only for sources of runtime/model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

/// The rotary settings that the class of a family in transformers 5.24 reads. A setting that the class passes over is
/// refused, not applied.
struct RotaryForm {
  double theta = 10000.0;           ///< rope_theta where it is absent
  bool partial = false;             ///< applies partial_rotary_factor
  bool by_layer = false;            ///< rope_parameters has an entry for each kind of layer
  std::int64_t original = 0;        ///< original_max_position_embeddings has this value where it is absent at the top
  bool longrope_alone = false;      ///< takes no other scaling, and names it "su" or "yarn" too
  std::string_view architecture{};  ///< the class, for messages
};

/// The fields of a GPT-2 but for the vocabulary and init_std. Throws JobError, as the next function.
[[nodiscard]] DecoderConfig read_gpt2(const HfKeys& keys);
/// The same of any other family of DecoderFamily.
[[nodiscard]] DecoderConfig read_rotary_family(const HfKeys& keys, DecoderFamily family);

/// The keys that the functions above read back as the same shape.
[[nodiscard]] nlohmann::ordered_json gpt2_json(const DecoderConfig& config);
[[nodiscard]] nlohmann::ordered_json rotary_family_json(const DecoderConfig& config);

/// Reads rope_theta, rope_scaling, rope_parameters and partial_rotary_factor into the shape, whose head_size and
/// positions are known, and shortens the positions to those that a longrope's short factors are for.
void read_rotary(const HfKeys& keys, DecoderConfig& config, const RotaryForm& form);
/// Writes them, as transformers 4 and 5 read them.
void write_rotary(const DecoderConfig& config, const RotaryForm& form, nlohmann::ordered_json& out);

}  // namespace maestro
