// SPDX-License-Identifier: Apache-2.0
// What the places of a micro-batch's patches mean to an encoder: images, windows, entries in tables. Pure.
//
// ER-1 (windows): a window has the patches of an image whose rows, and whose columns, are equal after division by the
//       window's side; the last ones of an image are smaller. Rows of a window stand together in the encoder's order,
//       windows of an image, too, row by row.
// ER-2 (interpolation): the table's corners lie on the image's corners. A patch takes at most four entries, weighted by
//       nearness (bilinear, as torch's with align_corners true).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sections/section.hpp"
#include "sections/vision/row_mix.hpp"
#include "sections/vision/vision_shape.hpp"

namespace maestro {

/// A row's entry in port "places": number of the image in its sample, row and column; both -1 for a class row. The
/// column of a sound's row is 1 if its last window lies after the sound's end, else 0.
struct PatchPlace {
  std::int32_t image, row, column;
};

struct EncoderRows {
  std::vector<std::int32_t> offsets;  ///< images + 1
  std::vector<std::int32_t> first;    ///< (P) entry in the first table, of sounds (3 P) by window; -1: none
  std::vector<std::int32_t> second;   ///< (P) entry in the second table
  WeightedRows mix;                   ///< interpolated: entries of the table, by row

  std::vector<std::int32_t> window_offsets;  ///< windows + 1, in the encoder's order
  std::vector<std::int32_t> order;           ///< (P) row at each place of the encoder's order; empty: the same order
  std::vector<std::int32_t> inverse;         ///< (P) place of each row in the encoder's order; empty: the same
  std::vector<std::int32_t> turns;           ///< (P, 2) row and column, in the encoder's order; only with rotary
};

/// Returns the meaning of host values (P, 3) i32. `section` begins messages. Throws JobError for an image that the
/// encoder does not take (VE-2, VE-4), with the sample's number.
[[nodiscard]] EncoderRows encoder_rows(const VisionConfig& config, const std::string& section, const Inputs& inputs);

}  // namespace maestro
