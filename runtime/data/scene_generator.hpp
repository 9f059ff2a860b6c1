// SPDX-License-Identifier: Apache-2.0
// A small world to learn: pictures of coloured figures with questions and exact answers, and questions without
// pictures.
//
// SG-1: a sample depends on (options, split, number) only, on every machine.
// SG-2: no combination (which figures, colours, places and numbers; which fact in which words) is in both splits.
// SG-3: every word of an answer that validation asks for occurs in answers of training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/sample_index.hpp"
#include "runtime/data/scene_painter.hpp"

namespace maestro {

struct SceneOptions {
  std::uint64_t seed = 1;
  std::int64_t image_size = 32;  ///< side of every picture, pixels
  double jitter = 0.0;           ///< figures stand off their places by up to this, pixels
  double picture_share = 0.6;    ///< of samples that have pictures, in [0, 1]
};

struct SceneSample {
  std::vector<Image> pictures;  ///< none, one or two
  std::string caption;          ///< of the pictures, the same words for the same scene; empty without pictures
  std::string question;
  std::string answer;
  std::string combination;  ///< what the split goes by (SG-2), e.g. "pair red circle, blue square"
};

/// Kinds with a picture: one figure at the left, right, top or bottom; two beside each other; one to four alike; a
/// digit; and two pictures of which one has more. Without: sums, colours of things, spelling. Immutable: thread-safe.
class SceneGenerator {
 public:
  /// Throws JobError when an option is out of range.
  explicit SceneGenerator(const SceneOptions& options);
  [[nodiscard]] SceneSample draw(Split split, std::uint64_t number) const;

 private:
  SceneOptions options_;
};

}  // namespace maestro
