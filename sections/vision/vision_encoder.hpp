// SPDX-License-Identifier: Apache-2.0
// A vision transformer over the patches of images (Dosovitskiy et al. 2021; SigLIP, Zhai et al. 2023): linear patch
// embedding with bias, learned positions, pre-norm blocks with biases, a final layer norm. No class token, no pooling.
//
// Inputs  pixels    (P, 3 patch^2) f32 in (channel, row, column) order, patches of whole images, row by row
//         places    (P, 3) i32: number of the image in its sample, row and column of the patch in its image
// Output  features  (P, width) act, differentiable
//
// VE-1 (own image): a patch attends to all patches of its own image and to no other patch, however the micro-batch is
//       packed. Images end where the sample or the number of the image changes.
// VE-2 (positions): with positions "learned", a patch takes entry row * columns + column of the table, where columns is
//       that of the table's own grid: of SigLIP's weights image_size / patch_size (a smaller image takes the entries of
//       the grid's first rows and columns; none is interpolated), and of a new table that of the data's images. If
//       these differ in their columns, a new table has no grid, then or when it is stored: columns is that of the
//       patch's image. With "2d" it takes the sum of its row's and its column's entry (NaViT, Dehghani et al. 2023,
//       arXiv 2307.06304). An image beyond the tables is refused, when the job is checked or with its sample's name.
// VE-3 (ranks): over ranks both hold however images lie across their patches: places and image boundaries are those of
//       the whole micro-batch on every rank, pixels and features a rank's own rows. Patch embedding, position tables
//       and norms are whole on every rank, layers as in transformer_block.hpp.
#pragma once

#include <string>
#include <vector>

#include "sections/section.hpp"
#include "sections/transformer_block.hpp"
#include "sections/vision/vision_shape.hpp"

namespace maestro {

class VisionEncoder final : public Section {
 public:
  struct Options {
    VisionConfig vision;
    DataShape data;
    /// Shape keys; `data` stays empty. Throws JobError.
    static Options read(const JobTable& table) { return {read_vision_shape(table), {}}; }
  };
  /// Throws JobError for a shape that is no encoder or does not fit the data or the layout.
  VisionEncoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  /// Throws JobError, naming the sample, for an image beyond the position tables.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return state_; }
  /// The pooling head, a text model beside it and buffers, as whole SigLIP models store them.
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override { return hf_vision_config_text(config_); }
  [[nodiscard]] std::vector<std::string> notes() const override;
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  [[nodiscard]] ProductParameters products() override;
  void freeze() override;
  /// Not over ranks: they meet in collectives, so forward passes never overlap.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

  [[nodiscard]] const VisionConfig& vision() const { return config_; }

 private:
  struct Images;  // where each image begins, and each patch's entries in the position tables

  void build();
  BlockWeights layer(ParameterBuilder& add, const std::string& prefix) const;
  [[nodiscard]] Images images_of(Tape& tape, const Inputs& inputs) const;
  /// The rank's patches with their positions, (P_t, width) f32.
  [[nodiscard]] Var embedded(Tape& tape, const Inputs& inputs, const Images& images);

  SectionContext context_;
  VisionConfig config_;
  PictureGrids pictures_;  // of the data
  BlockOptions block_;
  Parameters parameters_;
  Affine patch_embedding_;
  Parameter* positions_ = nullptr;  // "learned"
  Parameter* rows_ = nullptr;       // "2d"
  Parameter* columns_ = nullptr;    // "2d"
  std::vector<BlockWeights> layers_;
  Affine final_norm_;
  std::vector<StateEntry> state_;
  bool frozen_ = false;
};

}  // namespace maestro
