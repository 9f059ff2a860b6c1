// SPDX-License-Identifier: Apache-2.0
// The layout of a micro-batch's tokens with the marks of its positions (Corpus::read_marks()), as far as a decoder
// reads them.
#pragma once

#include <span>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/model/decoder_config.hpp"
#include "sections/section.hpp"

namespace maestro {

inline constexpr const char* marks_name = "marks";
inline constexpr std::int64_t mark_axes = mark_columns - 1;  ///< positions among the columns of marks

/// Positions and ends of rows, from their marks (M, 4) i32.
struct MarkColumns {
  std::vector<std::int32_t> positions;  ///< (M, 3); empty if the decoder's pairs turn by one axis
  std::vector<std::int32_t> ends;       ///< (M); empty if no row sees rows after it
};

/// Takes apart the marks of packed sequences for `config`. Throws std::invalid_argument, with the number of the row in
/// its sequence, for an end that is before the row, beyond the sequence, or before the end of the row before.
[[nodiscard]] MarkColumns mark_columns_of(const DecoderConfig& config, std::span<const std::int32_t> marks,
                                          std::span<const std::int32_t> offsets);

/// Keeps a layout's arrays on the tape until the backward pass ends.
class MarkedLayout {
 public:
  /// Reads port "marks"; without it, or if the decoder does not need marks, it is the layout of `inputs`. Throws
  /// JobError, with the section's name, for marks that mark_columns_of() refuses.
  MarkedLayout(const std::string& section, Tape& tape, const Inputs& inputs, const DecoderConfig& config);

  [[nodiscard]] const SequenceLayout& layout() const { return layout_; }

 private:
  Block positions_, ends_;
  SequenceLayout layout_;
};

}  // namespace maestro
