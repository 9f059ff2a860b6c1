// SPDX-License-Identifier: Apache-2.0
// A small synthetic task: pictures of coloured figures with questions and exact answers, and questions without
// pictures.
//
// SN-1 (repeatable): a sample depends on (options, split, number) only, on every machine.
// SN-2 (splits share no combination): no combination (which figures, colours, places and numbers; which fact in which
//       words) is in both splits.
// SN-3 (known words): every word of an answer in validation occurs in answers of training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/sample_index.hpp"
#include "runtime/data/synthetic/scene_painter.hpp"

namespace maestro {

struct SceneOptions {
  std::uint64_t seed = 1;
  std::int64_t image_size = 32;  ///< side of every picture, pixels
  double jitter = 0.0;           ///< most distance of a figure from its place, pixels
  double picture_share = 0.6;    ///< of samples that have pictures, in [0, 1]
};

struct SceneSample {
  std::vector<Image> pictures;  ///< at most two
  std::string caption;          ///< of the pictures, the same words for the same scene; empty without pictures
  std::string question;
  std::string answer;
  std::string combination;  ///< decides the split (SN-2), e.g. "pair red circle, blue square"
};

/// Kinds with a picture: a figure at the left, right, top or bottom; two beside each other; up to four alike; a digit;
/// and two pictures with unequal numbers of figures. Kinds without: sums, colours of things, spelling. Immutable:
/// thread-safe.
class SceneGenerator {
 public:
  /// Throws JobError when an option is out of range.
  explicit SceneGenerator(const SceneOptions& options);
  [[nodiscard]] SceneSample draw(Split split, std::uint64_t number) const;

 private:
  SceneOptions options_;
};

}  // namespace maestro
