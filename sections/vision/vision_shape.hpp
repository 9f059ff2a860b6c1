// SPDX-License-Identifier: Apache-2.0
// A vision encoder's shape, completed and checked, and its work. Pure.
#pragma once

#include <string>

#include "runtime/job/job_table.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "runtime/sound/sound_processor.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

/// Returns `config` with ffn and max_patches filled in. max_patches is the largest number of patches in an image, or
/// 256 for `data` without images. A new table has the columns of the data's images if these are equal, otherwise 0.
[[nodiscard]] VisionConfig resolved(VisionConfig config, const DataShape& data);

/// Reads layers, width, heads, ffn, patch, positions ("learned" or "2d"), max_patches, max_grid, norm_epsilon and
/// init_std from a section's table, unresolved. With `weights` the folder's config.json provides the keys that the
/// table leaves out. Throws JobError.
/// `modality` chooses an encoder of a model that has two.
[[nodiscard]] VisionConfig read_vision_shape(const JobTable& table, Modality modality = Modality::image);

/// Throws JobError if `config` is not an encoder's (a size below 1, heads that do not divide) or does not fit the
/// patches and image grids that the data source sends.
void check_vision(const std::string& section, const VisionConfig& config, const DataShape& data);
/// Throws JobError if the position tables lack an entry for a patch in this grid (VE-2). The message has `image`,
/// such as "vision: sample 3: image 0 has ", the size, and the remedy.
void check_grid(const VisionConfig& config, const PatchGrid& grid, const std::string& image);
/// Throws JobError if a tile's grid is not the learned table's (VE-4). The message has `tile`, as for check_grid.
void check_whole_tile(const VisionConfig& config, const PatchGrid& grid, const std::string& tile);
/// Returns a note if the run's images fill only a part of a stored table; else empty.
[[nodiscard]] std::string note_on_grid(const VisionConfig& config, const PictureGrids& pictures);

/// Returns the FLOPs of a forward pass for a sample with P rows in all images, P / images in each:
///   2 P 3 patch^2 times C                        patch embedding; of sounds 2 P (3 * 3 mels C + 3 C C)
///   per layer that is computed, with m = 2, or 3 if it is gated
///              2 P C (4 C + m F)                 matrix products
///              2 * 2 * P (P / images) C          scores and their product with the values, all pairs of an image; at
///                                                most window^2 pairs a row in a layer with windows
/// Norms, positions and pointwise work are left out. `config` must be resolved.
[[nodiscard]] double vision_flops(const VisionConfig& config, const SampleShape& sample);
/// Returns the first of these terms.
[[nodiscard]] double patch_flops(const VisionConfig& config, const SampleShape& sample);
/// Returns the activation bytes that a training pass keeps until its backward pass, with `recompute` layers to a group
/// only a group's and the streams before the groups; `config` must be resolved.
[[nodiscard]] double vision_bytes(const VisionConfig& config, const SampleShape& sample, DType precision,
                                  std::int64_t recompute = 0);
/// Returns the bytes that a pass holds temporarily for a layer's values and gradients.
[[nodiscard]] double vision_working_bytes(const VisionConfig& config, const SampleShape& sample, DType precision);

/// Returns the number of elements in a patch, (channel, row, column), or of a sound's row, (window, band, frame).
[[nodiscard]] inline std::int64_t patch_columns(const VisionConfig& config) {
  return config.mels > 0 ? sound_columns(config.mels) : 3 * config.patch * config.patch;
}

}  // namespace maestro
