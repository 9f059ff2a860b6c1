// SPDX-License-Identifier: Apache-2.0
// Greedy answers of a vision-language model for a person to read. Each token takes a full forward pass, so it suits
// only short answers. Pure: no actors, no threads; runs on the caller's thread, which must be allowed to use the
// sections.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ops/operator_table.hpp"
#include "sections/section.hpp"
#include "sections/vision/vision_language_decoder.hpp"

namespace maestro {

/// A model's sections with the precisions they were built for. Vision and projector may be null for prompts without
/// images.
struct VisionLanguageModel {
  Section* vision = nullptr;
  DType vision_precision = DType::f32;
  Section* projector = nullptr;
  DType projector_precision = DType::f32;
  VisionLanguageDecoder* decoder = nullptr;
  DType decoder_precision = DType::f32;
};

struct Prompt {
  std::span<const std::int32_t> tokens;  ///< not empty; image_token at the position of each image row
  Tensor pixels;                         ///< (P, 3 patch^2) f32; undefined: no images
  Tensor places;                         ///< (P, 3) i32, in VisionEncoder's form
};

struct GenerateOptions {
  std::int64_t max_tokens = 32;
  std::int32_t end_token = -1;  ///< token that ends the answer and does not belong to it; -1: none
};

/// Returns the tokens after the prompt, each with the largest logit (for equal logits the lower id); fewer than
/// max_tokens after the end token or at the end of the decoder's positions. Throws JobError if the prompt's image
/// tokens and patches do not match, or if it has images and the model lacks vision.
[[nodiscard]] std::vector<std::int32_t> generate(const OperatorTable& ops, const VisionLanguageModel& model,
                                                 const Prompt& prompt, const GenerateOptions& options = {});

}  // namespace maestro
