// SPDX-License-Identifier: Apache-2.0
// Marks of the positions of a sample with images: where rotary pairs and attention take a row to stand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "runtime/core/result.hpp"
#include "runtime/images/image_plan.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro {

/// What a decoder reads from marks.
struct MarkRule {
  bool axes = false;  ///< a row of an image has positions of its own on three axes (Qwen2-VL, Wang et al. 2024)
  ImageMask mask = ImageMask::causal;
  /// Returns whether every sample has the marks of a text.
  [[nodiscard]] bool plain() const { return !axes && mask == ImageMask::causal; }
  friend bool operator==(const MarkRule&, const MarkRule&) = default;
};

/// A sample with images.
struct MarkedSample {
  std::span<const std::int32_t> tokens{};  ///< T; image_token where a row of an image stands
  std::int64_t prefix = 0;                 ///< positions before the first learned token
  std::span<const ImageGrid> images{};     ///< grid of each image's rows, in order; read only with axes
};

/// Writes marks (T, 4) = time, row, column, and the end of the tokens that the position sees, from the sample's first:
///   text      (p, p, p), end q + 1 for the q-th token; p counts on from 0
///   image     with axes (s, s + row, s + column) for its rows in raster order, s being the next p, which then goes on
///             at s + max(rows, columns); without axes as text
///   end       with ImageMask::images where the run of image tokens ends; with ImageMask::prefix where the prefix ends
/// as get_rope_index() and the token types of transformers 5.24. Throws std::invalid_argument for a span of another
/// size, a prefix beyond the sample, and grids that do not have as many rows as there are image tokens.
void write_marks(const MarkRule& rule, const MarkedSample& sample, std::span<std::int32_t> marks);

/// Returns the position after marked rows: 1 more than the largest, on every axis.
[[nodiscard]] std::int32_t next_position(std::span<const std::int32_t> marks);

/// Reads the rule of the decoder in a folder. Errors as read_hf_config().
[[nodiscard]] Result<MarkRule> read_mark_rule(const std::filesystem::path& folder);

}  // namespace maestro
