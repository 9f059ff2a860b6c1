// SPDX-License-Identifier: Apache-2.0
// The shape of a vision encoder, completed and checked, and the work it means. Pure.
#pragma once

#include <string>

#include "runtime/job/job_table.hpp"
#include "runtime/state/hf_vision_config.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

/// `config` with ffn filled in, and max_patches: the most patches of a picture, or 256 where `data` has none. Unless
/// the table is stored, its columns are those of the data's pictures where all have as many, and 0 where they differ.
[[nodiscard]] VisionConfig resolved(VisionConfig config, const DataShape& data);

/// Reads layers, width, heads, ffn, patch, positions ("learned" or "2d"), max_patches, max_grid, norm_epsilon and
/// init_std of a section's table, not resolved. With `weights` given, the folder's config.json provides the keys that
/// the table leaves out. Throws JobError.
[[nodiscard]] VisionConfig read_vision_shape(const JobTable& table);

/// Throws JobError when `config` is no encoder (a size below 1, heads that do not divide) or cannot take the patches
/// and the grids of the pictures that the data source sends.
void check_vision(const std::string& section, const VisionConfig& config, const DataShape& data);
/// Throws JobError when the position tables have no entry for a patch of a picture of this grid (VE-2); the message is
/// `picture`, such as "vision: sample 3: image 0 has ", the size, and the remedy.
void check_grid(const VisionConfig& config, const PatchGrid& grid, const std::string& picture);
/// A note for a run whose pictures fill only a part of a stored table; empty where they fill it.
[[nodiscard]] std::string note_on_grid(const VisionConfig& config, const PictureGrids& pictures);

/// FLOPs of a forward pass over a sample whose images have P patches together; with P / images patches in each:
///   2 P 3 patch^2 C                              patch embedding
///   per layer  2 P C (4 C + 2 F)                 matrix products
///              2 * 2 * P (P / images) C          scores and their product with the values, all pairs of an image
/// Norms, positions and pointwise work are left out. `config` must be resolved.
[[nodiscard]] double vision_flops(const VisionConfig& config, const SampleShape& sample);
/// Bytes of activations that a training pass keeps until its backward pass; `config` must be resolved.
[[nodiscard]] double vision_bytes(const VisionConfig& config, const SampleShape& sample, DType precision);
/// Bytes of a layer's values and gradients that a pass holds for a while.
[[nodiscard]] double vision_working_bytes(const VisionConfig& config, const SampleShape& sample, DType precision);

/// Elements of a patch, (channel, row, column).
[[nodiscard]] inline std::int64_t patch_columns(const VisionConfig& config) {
  return 3 * config.patch * config.patch;
}

}  // namespace maestro
