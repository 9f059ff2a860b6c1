// SPDX-License-Identifier: Apache-2.0
// A small synthetic task: images of coloured figures with questions and exact answers, and questions without images.
//
// SN-1 (repeatable): a sample depends on (options, split, number) only, on every machine.
// SN-2 (splits share no combination): no combination is in both splits. A combination is the choice of figures,
// colours,
//       places and numbers, or of a fact and its wording.
// SN-3 (known words): every word in a validation answer also occurs in training answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/sample_index.hpp"
#include "runtime/data/synthetic/scene_painter.hpp"

namespace maestro {

struct SceneOptions {
  std::uint64_t seed = 1;
  std::int64_t image_size = 32;  ///< side of every image, in pixels
  double jitter = 0.0;           ///< most distance of a figure from its place along each axis, in pixels
  double picture_share = 0.6;    ///< share of samples with images, in [0, 1]
};

struct SceneSample {
  std::vector<Image> pictures;  ///< at most two images
  std::string caption;          ///< caption, the same for the same scene; empty without images
  std::string question;
  std::string answer;
  std::string combination;  ///< key that decides the split (SN-2), e.g. "pair red circle, blue square"
};

/// Kinds of samples with an image: a figure at the left, right, top or bottom; two figures next to each other; up to
/// four equal figures; a digit; and two images with different numbers of figures. Kinds without images: sums, colours
/// of things, spelling. Immutable: thread-safe.
class SceneGenerator {
 public:
  /// Throws JobError when an option is out of range.
  explicit SceneGenerator(const SceneOptions& options);
  [[nodiscard]] SceneSample draw(Split split, std::uint64_t number) const;

 private:
  SceneOptions options_;
};

}  // namespace maestro
