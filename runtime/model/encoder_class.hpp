// SPDX-License-Identifier: Apache-2.0
// Configuration classes of vision encoders in transformers: their defaults, and the keys that they share. Only for
// sources of runtime/model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/model/hf_keys.hpp"
#include "runtime/model/hf_vision_config.hpp"

namespace maestro {

/// Defaults of a class.
struct EncoderClass {
  std::string_view type;  ///< model_type
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t ffn = 3072;
  std::int64_t image = 224;  ///< side of an image, pixels
  std::int64_t patch = 16;
  GeluKind activation = GeluKind::tanh;
  double norm_epsilon = 1e-6;
  bool class_row = false;
  bool pre_norm = false;
  bool patch_bias = true;
  bool variants = false;  ///< has InternVLVisionConfig's keys for norms, biases and factors of branches
};

inline constexpr EncoderClass siglip_class{.type = "siglip_vision_model"};
inline constexpr EncoderClass clip_class{.type = "clip_vision_model",
                                         .patch = 32,
                                         .activation = GeluKind::quick,
                                         .norm_epsilon = 1e-5,
                                         .class_row = true,
                                         .pre_norm = true,
                                         .patch_bias = false};
inline constexpr EncoderClass internvl_class{.type = "internvl_vision",
                                             .layers = 24,
                                             .width = 1024,
                                             .heads = 16,
                                             .ffn = 4096,
                                             .image = 448,
                                             .patch = 14,
                                             .activation = GeluKind::erf,
                                             .class_row = true,
                                             .variants = true};
/// The class of SmolVLM and Idefics3, whose model_type in files varies.
inline constexpr EncoderClass smolvlm_class{.type = "smolvlm_vision", .width = 1152, .heads = 16, .patch = 32};

/// Reads an encoder's keys except for its positions. Throws JobError for an unsupported value.
[[nodiscard]] VisionConfig read_encoder(const HfKeys& keys, const EncoderClass& defaults);
/// Reads the learned table for square images of image_size pixels into `config`.
void read_square_table(const HfKeys& keys, const EncoderClass& defaults, VisionConfig& config);
/// Refuses the first key that was not read. Keys that do not change an encoder's features may be unread.
void refuse_unknown_encoder_keys(const HfKeys& keys);

/// Reads a list of some of an encoder's layers, ascending from 0 on; absent: `absent`.
[[nodiscard]] std::vector<std::int64_t> read_layers(const HfKeys& keys, std::string_view key, std::int64_t layers,
                                                    std::vector<std::int64_t> absent = {});
/// Reads a GELU under one of its names. Throws JobError for another activation.
[[nodiscard]] GeluKind read_gelu(const HfKeys& keys, std::string_view key, GeluKind absent);

}  // namespace maestro
