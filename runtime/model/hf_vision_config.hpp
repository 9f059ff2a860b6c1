// SPDX-License-Identifier: Apache-2.0
// config.json of vision parts, to and from plain settings.
//
// siglip_vision_model (transformers SiglipVisionConfig), also inside a whole model's vision_config (model_type siglip):
//   num_hidden_layers, hidden_size, num_attention_heads, intermediate_size, patch_size, image_size, layer_norm_eps,
//   hidden_act.
// maestro_vision: the same keys for encoders whose positions SigLIP does not have, so that no other program takes them
// for a SigLIP: position_tables = "2d" with max_grid; or instead of image_size max_patches, and table_columns if all of
// the table has the same number of columns. Read also from siglip_vision_model, as earlier versions wrote it.
// llava (transformers LlavaConfig), of which the projector is read: vision_config.hidden_size, text_config.hidden_size,
//   projector_hidden_act, multimodal_projector_bias. vision_feature_layer and vision_feature_select_strategy decide
//   which features it takes; -1 and "full" are the nearest to what a vision section sends.
// maestro_projector: the projector alone, on the features of a maestro encoder. Earlier versions wrote it as a llava
//   whose vision_config has no model_type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// How a vision encoder learns where a patch is.
enum class PatchPositions : std::uint8_t {
  learned,  ///< a table, an entry for each place, as SigLIP (Zhai et al. 2023)
  grid      ///< "2d": the sum of a row table and a column table, as NaViT (Dehghani et al. 2023, section 2.1)
};

/// Shape of a vision transformer: layer norm before each branch, biases, tanh GELU, attention within each image.
struct VisionConfig {
  std::int64_t layers = 6;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t ffn = 0;    ///< 0: 4 x width
  std::int64_t patch = 8;  ///< pixels on a patch's side
  PatchPositions positions = PatchPositions::learned;
  std::int64_t max_patches = 0;  ///< of an image, learned positions; 0: to fit the data
  std::int64_t columns = 0;      ///< of the learned table's own grid; 0: entries lie by each image's own columns
  bool stored = false;           ///< read from a file: the tables have the sizes that they have
  std::int64_t max_grid = 128;   ///< rows and columns of patches of an image; "2d" positions
  double norm_epsilon = 1e-6;
  double init_std = 0.02;
};

/// A projector from vision features to a decoder's width: linear, tanh GELU, linear, as LLaVA 1.5 (Liu et al. 2023).
struct ProjectorConfig {
  std::int64_t vision_width = 0;  ///< 0: absent in the file
  std::int64_t width = 0;         ///< 0: absent in the file
  double init_std = 0.02;
  bool of_llava = false;  ///< learned on hidden states that had not passed the encoder's final norm
};

/// Errors (invalid_argument) as parse_hf_config. Absent keys take the defaults of the transformers library.
[[nodiscard]] Result<VisionConfig> parse_hf_vision_config(std::string_view text, std::string_view where);
[[nodiscard]] Result<ProjectorConfig> parse_hf_projector_config(std::string_view text, std::string_view where);
/// The same from a file, or from the config.json of a folder.
[[nodiscard]] Result<VisionConfig> read_hf_vision_config(const std::filesystem::path& path);
[[nodiscard]] Result<ProjectorConfig> read_hf_projector_config(const std::filesystem::path& path);

/// Returns pretty-printed JSON that the parsers above read back as the same model. If the learned table's own grid is a
/// square, transformers loads the encoder as a SiglipVisionModel without its pooling head; it refuses all others.
[[nodiscard]] std::string hf_vision_config_text(const VisionConfig& config);
[[nodiscard]] std::string hf_projector_config_text(const ProjectorConfig& config);

}  // namespace maestro
