// SPDX-License-Identifier: Apache-2.0
// Greedy answers of a vision-language model, for a person to read: a full forward pass for each token, so suitable only
// for short answers. Pure: no actors, no threads; runs on the caller's thread, which must be the thread that may use
// the sections.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ops/operator_table.hpp"
#include "sections/section.hpp"
#include "sections/vision/vision_language_decoder.hpp"

namespace maestro {

/// Sections of a model, each with the precision it was built for. Vision and projector may be null for prompts without
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
  std::int32_t end_token = -1;  ///< token that ends the answer and is not part of it; -1: none
};

/// Returns the tokens after the prompt, each with the largest logit (the lower id of equal logits); fewer than
/// max_tokens if the end token comes or the decoder's positions are used up. Throws JobError for a prompt whose image
/// tokens and patches do not match, or with images for a model without vision.
[[nodiscard]] std::vector<std::int32_t> generate(const OperatorTable& ops, const VisionLanguageModel& model,
                                                 const Prompt& prompt, const GenerateOptions& options = {});

}  // namespace maestro
