// SPDX-License-Identifier: Apache-2.0
// The vision encoder and the projector of a vision-language model, for prompts with images: from pixels to the rows
// that the decoder receives. Runs on the caller's thread, which must be allowed to use the sections.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/core/modality.hpp"
#include "runtime/ops/operator_table.hpp"
#include "sections/section.hpp"

namespace maestro {

/// A section without a run, and the precision for which it was built.
struct LoadedSection {
  std::unique_ptr<Section> section;
  DType precision = DType::f32;
};

/// A sample's images: outputs of the data source.
struct SampleImages {
  Tensor pixels;            ///< (P, 3 patch^2) f32
  Tensor places;            ///< (P, 3) i32
  std::int64_t visual = 0;  ///< V, rows of the decoder
  Tensor sources = {};      ///< (V, 4) i32; undefined unless the projector mixes rows
  Tensor weights = {};      ///< (V, 4) f32; the same
};

/// The decoder's rows of a sample's images, with the projector's precision. Must not outlive their reader.
class ImageRows {
 public:
  /// Returns the rows (V, width); undefined without images.
  [[nodiscard]] Tensor visual() const { return rows_.empty() ? Tensor() : rows_.front().value(); }
  /// Returns the rows of visual_1, visual_2, ... (PromptImages::taps).
  [[nodiscard]] std::vector<Tensor> taps() const;

 private:
  friend class ImageReader;
  std::vector<Var> rows_;  // taps after the first
};

/// Not thread-safe.
class ImageReader {
 public:
  /// Takes sections with their values, frozen, on a single rank.
  ImageReader(const OperatorTable& ops, LoadedSection vision, LoadedSection projector);

  /// Loads both sections of a vision-language model's folder; `modality` chooses them if the model reads images and
  /// sounds. Throws JobError.
  [[nodiscard]] static std::unique_ptr<ImageReader> open(const OperatorTable& ops, const std::filesystem::path& folder,
                                                         DType precision, Modality modality = Modality::image);

  /// Throws JobError if the projector makes another number of rows.
  [[nodiscard]] ImageRows read(const SampleImages& images);

 private:
  LoadedSection vision_, projector_;
  Arena arena_;
  Tape seeing_, projecting_;  // after the arena they allocate from
};

}  // namespace maestro
