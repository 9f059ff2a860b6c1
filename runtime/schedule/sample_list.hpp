// SPDX-License-Identifier: Apache-2.0
// The samples of a step as a short text: everything that a plan depends on, without their ids. Pure.
//
// SL-1 (round trip): parse_sample_list(sample_list(samples)) has the same samples in the same order, but for their ids,
//       which are their places.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Returns "512*3 40/256/1 7@2": tokens; patches, images and, if unlike the patches, visual rows, if any; after a
/// plus, patches and images as another model reads them, and if it reads other tokens visual rows, tokens and answers;
/// after a tilde, rows of sounds next to images for the encoder, their clips, and their rows for the decoder; the
/// source, unless it is the first; and the number of equal samples in a row.
[[nodiscard]] std::string sample_list(std::span<const SampleRef> samples);
/// Parses the text. Error `corrupt` names the invalid item.
[[nodiscard]] Result<std::vector<SampleRef>> parse_sample_list(std::string_view text);

}  // namespace maestro
