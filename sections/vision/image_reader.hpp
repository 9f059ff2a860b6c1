// SPDX-License-Identifier: Apache-2.0
// The vision encoder and the projector of a vision-language model, for prompts with images: from pixels to the rows
// that the decoder receives. Runs on the caller's thread, which must be allowed to use the sections.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "runtime/ops/operator_table.hpp"
#include "sections/section.hpp"

namespace maestro {

/// A section without a run, and the precision for which it was built.
struct LoadedSection {
  std::unique_ptr<Section> section;
  DType precision = DType::f32;
};

/// Not thread-safe.
class ImageReader {
 public:
  /// Takes sections with their values, frozen, on a single rank.
  ImageReader(const OperatorTable& ops, LoadedSection vision, LoadedSection projector);

  /// Loads both sections of a vision-language model's folder. Throws JobError.
  [[nodiscard]] static std::unique_ptr<ImageReader> open(const OperatorTable& ops, const std::filesystem::path& folder,
                                                         DType precision);

  /// Returns the `rows` rows (rows, width) for pixels (P, 3 patch^2) f32 and places (P, 3) i32 of a sample's images,
  /// with the projector's precision; valid until the next call. Throws JobError if the projector makes another number.
  [[nodiscard]] Tensor read(const Tensor& pixels, const Tensor& places, std::int64_t rows);

 private:
  LoadedSection vision_, projector_;
  Arena arena_;
  Tape seeing_, projecting_;  // after the arena they allocate from
  Var visual_;                // recorded on projecting_
};

}  // namespace maestro
