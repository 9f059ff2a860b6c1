// SPDX-License-Identifier: Apache-2.0
// The samples of a step as a short text: all that a plan depends on, without their ids. Pure.
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

/// Returns "512*3 40/256/1 7@2": tokens, patches and images where there are any, the source but for the first, and how
/// many samples in a row are alike.
[[nodiscard]] std::string sample_list(std::span<const SampleRef> samples);
/// Error `corrupt` that names the item which is wrong.
[[nodiscard]] Result<std::vector<SampleRef>> parse_sample_list(std::string_view text);

}  // namespace maestro
