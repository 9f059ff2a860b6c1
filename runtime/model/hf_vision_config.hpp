// SPDX-License-Identifier: Apache-2.0
// Converts config.json of vision parts to and from plain settings.
//
// siglip_vision_model (transformers SiglipVisionConfig), also as vision_config of a complete model (model_type siglip):
//   num_hidden_layers, hidden_size, num_attention_heads, intermediate_size, patch_size, image_size, layer_norm_eps,
//   hidden_act.
// maestro_vision: the same keys for all other encoders, so that no other program mistakes them for a SigLIP:
//   position_tables = "2d" with max_grid; or max_patches instead of image_size, with table_columns if the table has a
//   fixed number of columns; "interpolated", "none", or "sinusoids"; class_row, pre_norm, last_norm, patch_bias,
//   layers_run, whole_tiles, rms_norm, gated, fused_qkv, rope_theta, times, window, full_layers, taps, head_norms,
//   qkv_bias, branch_scale. Positions are also read from siglip_vision_model, as earlier versions wrote it.
// maestro_projector: a separate projector, with the keys of a llava, and join, products, tile_rows, newline, hidden,
//   norm, rms_norm, norm_epsilon, norm_offset, taps, pool, transposed. Earlier versions wrote it as a llava with a
//   vision_config that lacks model_type.
// Both parts are also read from the config.json of a vision-language model (vision_part.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/gelu_kind.hpp"
#include "runtime/core/modality.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// Layers whose results an encoder may send in addition to its features.
inline constexpr std::int64_t most_taps = 8;

/// A vision encoder's encoding of patch positions.
enum class PatchPositions : std::uint8_t {
  learned,       ///< a table with an entry per position, as in SigLIP (Zhai et al. 2023)
  grid,          ///< "2d": the sum of a row table and a column table, as in NaViT (Dehghani et al. 2023, section 2.1)
  interpolated,  ///< a table stretched over each image: bilinear, with its corners at the image's corners
  none,          ///< no table
  sinusoids      ///< a table of sines and cosines that is computed (Vaswani et al. 2017, section 3.5)
};

/// Shape of a vision transformer: norm before each branch, biases, attention within each tile.
struct VisionConfig {
  std::int64_t layers = 6;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t ffn = 0;    ///< columns of the feed-forward network; 0: 4 x width
  std::int64_t patch = 8;  ///< side of a patch, pixels
  PatchPositions positions = PatchPositions::learned;
  std::int64_t max_patches = 0;  ///< entries of the learned or interpolated table; 0: fits the data
  std::int64_t columns = 0;      ///< columns of this table's grid; 0: each image's columns
  bool stored = false;           ///< read from a file: the tables' sizes are fixed
  std::int64_t max_grid = 128;   ///< limit of patch rows and of patch columns in an image, for "2d" positions
  double norm_epsilon = 1e-6;
  double init_std = 0.02;
  GeluKind activation = GeluKind::tanh;
  bool class_row = false;       ///< each tile has a row with a learned embedding (CLIP, Radford et al. 2021)
  bool pre_norm = false;        ///< a norm before the first layer
  bool last_norm = true;        ///< a norm after the last layer
  bool patch_bias = true;       ///< a bias in the product of patches
  std::int64_t layers_run = 0;  ///< layers that the features need; 0: all
  bool whole_tiles = false;     ///< every tile has the learned table's grid
  bool rms_norm = false;        ///< RMS norms; false: layer norms
  bool gated = false;           ///< SwiGLU networks (Shazeer 2020); false: `activation` between two products
  bool fused_qkv = false;       ///< query, key and value are stored as one tensor
  /// Query and key turn, half of the pairs by a patch's row, half by its column; 0: they do not.
  double rope_theta = 0;
  std::int64_t times = 1;   ///< frames that an image stands for: the product of patches counts each pixel this often
  std::int64_t window = 0;  ///< side of the windows that attention is limited to, patches; 0: none
  std::vector<std::int64_t> full_layers{};  ///< layers without windows, from 0 on
  std::vector<std::int64_t> taps{};         ///< layers whose results are features, too, ascending from 0 on
  bool head_norms = false;                  ///< RMS norms of all query columns and of all key columns
  bool qkv_bias = true;                     ///< biases of query, key and value
  double branch_scale = 0;                  ///< initial factor of every column in a branch (LayerScale); 0: no factors
  bool key_bias = true;                     ///< with qkv_bias: of keys, too
  bool fixed_positions = false;             ///< the learned table is not trained
  /// Mel bands, for sounds: a row holds the frames that two convolutions read (Whisper, Radford et al. 2022). 0:
  /// images.
  std::int64_t mels = 0;

  /// Returns the number of layers that are computed.
  [[nodiscard]] std::int64_t run_layers() const { return layers_run > 0 ? layers_run : layers; }
  /// Returns the number of matrices in a feed-forward network.
  [[nodiscard]] std::int64_t ffn_matrices() const { return gated ? 3 : 2; }
  bool operator==(const VisionConfig&) const = default;
};

enum class FeatureNorm : std::uint8_t {
  none,
  before_join,  ///< over each feature
  after_join    ///< over the features that become one row
};

/// A projector from vision features to a decoder's width: linear, GELU, linear, as LLaVA 1.5 (Liu et al. 2023), or a
/// single linear product, as Idefics3 (Laurencon et al. 2024).
struct ProjectorConfig {
  std::int64_t vision_width = 0;  ///< columns of a feature; 0: absent in the file
  std::int64_t width = 0;         ///< output columns; 0: absent in the file
  double init_std = 0.02;
  std::int64_t join = 1;                 ///< features that become one row, side by side: patches of a block
  std::int64_t products = 2;             ///< linear products: 1 or 2
  GeluKind activation = GeluKind::tanh;  ///< function between two products
  bool biases = true;
  std::int64_t tile_rows = 0;  ///< rows of a tile if the first, its class row, is dropped; 0: all rows are used
  bool newline = false;        ///< a learned row ends each row of an image's grid (LLaVA-OneVision)
  std::int64_t hidden = 0;     ///< columns between two products; 0: `width`
  FeatureNorm norm = FeatureNorm::none;  ///< norm before the products
  bool rms_norm = false;                 ///< it is an RMS norm; false: a layer norm
  double norm_epsilon = 1e-6;
  double norm_offset = 0;   ///< addend to the weights of an RMS norm
  std::int64_t taps = 0;    ///< projectors with a norm after_join of their own, for the features after some layers
  std::int64_t pool = 1;    ///< consecutive features whose mean is one feature: patches of a block
  bool drops_rest = false;  ///< features at the end of a tile that do not fill a block of `pool` are dropped
  bool transposed = false;  ///< a single product's matrix is stored as (vision_width, width)
  bool sounds = false;      ///< the features are of sounds

  bool operator==(const ProjectorConfig&) const = default;
};

/// Returns the name of position tables, as in key position_tables.
[[nodiscard]] std::string_view name_of(PatchPositions positions);
/// Returns an activation's name in config.json: "gelu" for erf.
[[nodiscard]] std::string_view name_of(GeluKind kind);

/// Parses a config.json, also of a vision-language model (vision_part.hpp). Errors (invalid_argument) as
/// parse_hf_config. Absent keys take the defaults of transformers.
/// `modality` chooses an encoder of a model that has two (VP-3); other files have one.
[[nodiscard]] Result<VisionConfig> parse_hf_vision_config(std::string_view text, std::string_view where,
                                                          Modality modality = Modality::image);
[[nodiscard]] Result<ProjectorConfig> parse_hf_projector_config(std::string_view text, std::string_view where,
                                                                Modality modality = Modality::image);
/// Parses a file, or a folder's config.json.
[[nodiscard]] Result<VisionConfig> read_hf_vision_config(const std::filesystem::path& path,
                                                         Modality modality = Modality::image);
[[nodiscard]] Result<ProjectorConfig> read_hf_projector_config(const std::filesystem::path& path,
                                                               Modality modality = Modality::image);

/// Returns the kind of input by the config.json of an encoder or a projector, as the functions below write it.
[[nodiscard]] Modality modality_of_config(std::string_view text);

/// Returns pretty-printed JSON that the parsers above read back as the same model. If the encoder is a SigLIP's whose
/// table is for square images, transformers loads it as a SiglipVisionModel without its pooling head; it refuses all
/// others.
[[nodiscard]] std::string hf_vision_config_text(const VisionConfig& config);
[[nodiscard]] std::string hf_projector_config_text(const ProjectorConfig& config);

}  // namespace maestro
