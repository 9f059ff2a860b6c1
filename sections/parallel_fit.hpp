// SPDX-License-Identifier: Apache-2.0
// Checks the layouts and pipeline stages that a model can be cut into. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/graph/layout.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Dimensions of a model that a layout shards. 0: not in the section.
struct CutSizes {
  std::int64_t heads = 0;       ///< divisible by tensor; context ranks may share a head's queries
  std::int64_t kv_heads = 0;    ///< divisible by tensor; context ranks may share a key head
  std::int64_t ffn = 0;         ///< divisible by tensor
  std::int64_t vocabulary = 0;  ///< at least tensor
  std::string_view vocabulary_name = "a vocabulary";
  std::int64_t delta_key_heads = 0;  ///< divisible by tensor * context
};

[[nodiscard]] bool fits(const CutSizes& sizes, const Layout& layout);

/// Throws JobError if `layout` does not fit. The line names the degree at fault, the dimension that cannot be cut, and
/// the nearest layout that fits, with the fewest ranks if several do: "student.tensor = 3: 4 heads cannot be cut in 3;
/// nearest that fits: tensor = 2".
void check_parallel_fit(const std::string& section, const CutSizes& sizes, const Layout& layout);

/// Throws JobError unless the layout's ranks can share a layer's experts (Layout::expert): "student.expert = 3: 8
/// experts cannot be cut in 3; nearest that fits: expert = 2".
void check_expert_fit(const std::string& section, std::int64_t experts, const Layout& layout);

/// Throws JobError if `layers` layers cannot be cut into stage.count stages: "student.pipeline = 5: 4 layers cannot be
/// cut in 5; nearest that fits: pipeline = 4". A stage without layers, or with layers beyond the last, is a programming
/// error: throws std::invalid_argument.
void check_stage(const std::string& section, const Stage& stage, std::int64_t layers);
/// Throws JobError unless the stage is the only stage of a section that cannot be cut; `why` is the reason in the
/// message.
void check_uncut(const std::string& section, const Stage& stage, std::string_view why);

}  // namespace maestro
