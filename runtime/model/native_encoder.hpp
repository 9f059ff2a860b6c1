// SPDX-License-Identifier: Apache-2.0
// Configuration classes of encoders for images of any size (Qwen2-VL, Wang et al. 2024, and its successors): rotary
// positions by row and column, blocks of patches that become one row of the decoder. Only for sources of runtime/model.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/model/hf_keys.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

/// Defaults of a class, and its kinds of layers.
struct NativeEncoder {
  std::string_view type;      ///< model_type
  std::string_view old_type;  ///< model_type in early files
  std::string_view width_key = "hidden_size";
  std::string_view out_key = "out_hidden_size";  ///< the decoder's width
  std::int64_t layers = 32;
  std::int64_t width = 1280;
  std::int64_t ffn = 0;  ///< columns of the feed-forward network; 0: mlp_ratio times the width, which is 4 by default
  std::int64_t patch = 14;
  GeluKind activation = GeluKind::quick;
  bool gated = false;
  bool rms_norm = false;
  bool patch_bias = false;
  std::int64_t table = 0;                     ///< entries of a square table of positions; 0: none
  std::int64_t window = 0;                    ///< side of windows, pixels; 0: none
  std::array<std::int64_t, 4> full_layers{};  ///< with windows
  bool taps = false;                          ///< three layers' results go to the decoder, too
  bool separate_qkv = false;                  ///< query, key and value are stored separately
};

inline constexpr NativeEncoder native_encoders[] = {
    {.type = "qwen2_vl_vision", .old_type = "qwen2_vl", .width_key = "embed_dim", .out_key = "hidden_size"},
    {.type = "qwen2_5_vl_vision",
     .old_type = "qwen2_5_vl",
     .width = 3584,
     .ffn = 3420,
     .gated = true,
     .rms_norm = true,
     .window = 112,
     .full_layers = {7, 15, 23, 31}},
    {.type = "qwen3_vl_vision",
     .old_type = "qwen3_vl",
     .layers = 27,
     .width = 1152,
     .ffn = 4304,
     .patch = 16,
     .activation = GeluKind::tanh,
     .patch_bias = true,
     .table = 2304,
     .taps = true},
    {.type = "qwen2_5_omni_vision_encoder",
     .old_type = "qwen2_5_omni_vision_encoder",
     .width = 3584,
     .ffn = 3420,
     .gated = true,
     .rms_norm = true,
     .window = 112,
     .full_layers = {7, 15, 23, 31},
     .separate_qkv = true},
};

/// Reads encoder and projector from vision_config, which may be absent. Throws JobError for an unsupported value, an
/// unknown key, and for an output width that differs from the decoder's, `text_width`.
void read_native_encoder(const HfKeys& keys, const NativeEncoder& defaults, std::int64_t text_width, VisionPart& part);

}  // namespace maestro
