// SPDX-License-Identifier: Apache-2.0
// Converts each decoder family's config.json to and from DecoderConfig. Only for sources of runtime/model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/model/decoder_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

/// The rotary settings that a family's class in transformers 5.24 reads. A setting that the class ignores is refused.
struct RotaryForm {
  double theta = 10000.0;       ///< rope_theta if absent
  bool partial = false;         ///< the class applies partial_rotary_factor
  double share = 1;             ///< partial_rotary_factor if absent
  bool axes = false;            ///< the class turns pairs by several axes, whose positions are equal for text
  bool by_layer = false;        ///< rope_parameters has an entry for each kind of layer
  std::int64_t original = 0;    ///< original_max_position_embeddings if absent at the top
  double yarn = 0;              ///< YaRN's factor, over 4096 positions, in files without rotary settings; 0: no YaRN
  bool longrope_alone = false;  ///< the class supports only longrope, and also names it "su" or "yarn"
  bool scores = false;          ///< the class scales scores by yarn's mscale_all_dim
  std::string_view architecture{};  ///< name of the class, for messages
};

/// Reads the fields of a GPT-2 except for vocabulary and init_std. Throws JobError, as the next function.
[[nodiscard]] DecoderConfig read_gpt2(const HfKeys& keys);
/// Reads the same fields of any other DecoderFamily.
[[nodiscard]] DecoderConfig read_rotary_family(const HfKeys& keys, DecoderFamily family);

/// Returns keys that the functions above read back as the same shape.
[[nodiscard]] nlohmann::ordered_json gpt2_json(const DecoderConfig& config);
[[nodiscard]] nlohmann::ordered_json rotary_family_json(const DecoderConfig& config);

/// Reads rope_theta, rope_scaling, rope_parameters and partial_rotary_factor into the shape, whose head_size and
/// positions are known, and limits the positions to the range of longrope's short factors.
void read_rotary(const HfKeys& keys, DecoderConfig& config, const RotaryForm& form);
/// Writes these keys so that transformers 4 and 5 read them.
void write_rotary(const DecoderConfig& config, const RotaryForm& form, nlohmann::ordered_json& out);

}  // namespace maestro
