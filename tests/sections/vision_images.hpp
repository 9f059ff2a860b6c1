// SPDX-License-Identifier: Apache-2.0
// Shared by tests of vision sections: random images split into patches, and a model of three sections on a shared tape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/image/mark_rows.hpp"
#include "sections/vision/projector.hpp"
#include "sections/vision/vision_encoder.hpp"
#include "sections/vision/vision_language_decoder.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {

struct PictureSize {
  std::int32_t rows = 1;
  std::int32_t columns = 1;
};

struct Pictures {
  std::vector<float> pixels;         // (P, 3 patch^2)
  std::vector<std::int32_t> places;  // (P, 3)
  std::vector<std::int32_t> counts;  // patches of each sample
  std::int64_t columns = 0;

  /// Returns random pixels in [-1, 1]; samples[i] lists the sizes of sample i's images.
  static Pictures random(std::uint64_t seed, const std::vector<std::vector<PictureSize>>& samples, std::int64_t patch);
  /// Returns only the patches [first, first + count), as one sample.
  [[nodiscard]] Pictures part(std::int32_t first, std::int32_t count) const;
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(places.size()) / 3; }
  [[nodiscard]] Tensor pixel_tensor() const;
  [[nodiscard]] Tensor place_tensor() const;
  /// Returns a batch of samples with these patches, one token each.
  [[nodiscard]] Batch batch() const;
  void connect(MicroBatch& batch) const;
};

/// Returns a configuration with 2 layers, width 16, 2 heads and patches of 2 x 2 pixels.
[[nodiscard]] VisionConfig tiny_vision(PatchPositions positions);
[[nodiscard]] DecoderConfig tiny_decoder(DecoderFamily family);

/// Returns tokens whose image positions fit the images: each sample begins with a word, then its patches, then `words`
/// words with targets (every fifth ignored).
[[nodiscard]] Batch illustrated(const Pictures& pictures, std::int32_t words, std::int64_t vocabulary);

/// Returns the marks (M, 4) of a batch by a rule without axes; a prefix is the rows before the first target's token.
[[nodiscard]] std::vector<std::int32_t> marks_of(const Batch& batch, const MarkRule& rule);
/// Returns marks as the value of a port, which lives as long as they.
[[nodiscard]] Tensor mark_tensor(const std::vector<std::int32_t>& marks);

}  // namespace maestro::testing
