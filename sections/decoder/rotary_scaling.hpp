// SPDX-License-Identifier: Apache-2.0
// The frequencies of a decoder's rotary positions. Pure.
#pragma once

#include "runtime/model/decoder_config.hpp"
#include "runtime/ops/rotary_frequencies.hpp"

namespace maestro {

/// Returns the frequencies of the first rope_share of a head's D columns, d = rope_share D: theta^(-2i / d), i < d / 2,
/// scaled as transformers 5.23 does (modeling_rope_utils.py), with the axes of rope_sections, which add up to d / 2
/// pairs. `local`: of a windowed layer. `config` must be resolved.
[[nodiscard]] RotaryFrequencies rotary_frequencies(const DecoderConfig& config, bool local);

}  // namespace maestro
