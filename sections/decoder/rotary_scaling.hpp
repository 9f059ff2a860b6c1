// SPDX-License-Identifier: Apache-2.0
// The frequencies of a decoder's rotary positions. Pure.
#pragma once

#include "runtime/model/decoder_config.hpp"
#include "runtime/ops/rotary_frequencies.hpp"

namespace maestro {

/// Returns the frequencies of the d rotated columns of a head, the first rope_share of them: theta^(-2i / d), i < d /
/// 2, scaled as transformers 5.23 does (modeling_rope_utils.py), with the axes of rope_sections, which add up to d / 2
/// pairs. `local`: of a windowed layer. `config` must be resolved.
[[nodiscard]] RotaryFrequencies rotary_frequencies(const DecoderConfig& config, bool local);
/// Returns the factor of attention's scores, with the growth that a scaling of positions adds to it; 0: 1 / sqrt(D).
[[nodiscard]] double score_scale(const DecoderConfig& config);

}  // namespace maestro
