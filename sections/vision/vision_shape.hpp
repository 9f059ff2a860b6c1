// SPDX-License-Identifier: Apache-2.0
// The shape of a vision encoder, completed and checked, and its work. Pure.
#pragma once

#include <string>

#include "runtime/job/job_table.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

/// Returns `config` with ffn filled in, and max_patches: the most patches of an image, or 256 for `data` without
/// images. A table that is not stored has the columns of the data's images if these are equal, otherwise 0.
[[nodiscard]] VisionConfig resolved(VisionConfig config, const DataShape& data);

/// Reads layers, width, heads, ffn, patch, positions ("learned" or "2d"), max_patches, max_grid, norm_epsilon and
/// init_std of a section's table, not resolved. With `weights` given, the folder's config.json provides the keys that
/// the table leaves out. Throws JobError.
[[nodiscard]] VisionConfig read_vision_shape(const JobTable& table);

/// Throws JobError if `config` is not an encoder (a size below 1, heads that do not divide) or cannot take the patches
/// and image grids that the data source sends.
void check_vision(const std::string& section, const VisionConfig& config, const DataShape& data);
/// Throws JobError if the position tables lack an entry for a patch in this grid (VE-2); the message is
/// `picture`, such as "vision: sample 3: image 0 has ", the size, and the remedy.
void check_grid(const VisionConfig& config, const PatchGrid& grid, const std::string& picture);
/// Returns a note for a run whose images fill only a part of a stored table; empty if they fill it.
[[nodiscard]] std::string note_on_grid(const VisionConfig& config, const PictureGrids& pictures);

/// Returns the FLOPs of a forward pass over a sample with P patches in all images, P / images in each:
///   2 P 3 patch^2 C                              patch embedding
///   per layer  2 P C (4 C + 2 F)                 matrix products
///              2 * 2 * P (P / images) C          scores and their product with the values, all pairs of an image
/// Norms, positions and pointwise work are left out. `config` must be resolved.
[[nodiscard]] double vision_flops(const VisionConfig& config, const SampleShape& sample);
/// Returns the bytes of activations that a training pass keeps until its backward pass; `config` must be resolved.
[[nodiscard]] double vision_bytes(const VisionConfig& config, const SampleShape& sample, DType precision);
/// Returns the bytes of a layer's values and gradients that a pass holds temporarily.
[[nodiscard]] double vision_working_bytes(const VisionConfig& config, const SampleShape& sample, DType precision);

/// Returns the elements of a patch, (channel, row, column).
[[nodiscard]] inline std::int64_t patch_columns(const VisionConfig& config) {
  return 3 * config.patch * config.patch;
}

}  // namespace maestro
