// SPDX-License-Identifier: Apache-2.0
// A vision transformer over the patches of images (Dosovitskiy et al. 2021; SigLIP, Zhai et al. 2023; CLIP, Radford et
// al. 2021; InternViT, Chen et al. 2023): linear patch embedding, learned positions, a class row and a norm if the
// model has them, pre-norm blocks with biases, and with norms of query and key and factors of branches if the model has
// them, a final layer norm if the model has it. No pooling. Images are tiles: rectangles that the encoder sees
// separately. An encoder of sounds (Whisper, Radford et al. 2022) has two convolutions over frames of mel bands instead
// of a patch embedding: a sound is an image with a single column.
//
// Inputs  pixels    (P, 3 patch^2) f32 in (channel, row, column) order, all patches of an image in any order; zeros for
//                   a class row. Of sounds (P, 9 mels): for each of three windows its three frames, in the order (band,
//                   frame), as SoundProcessor::rows() writes them
//         places    (P, 3) i32: number of the image in its sample, row and column of the patch in its image; both -1
//                   for a class row
// Outputs features  (P, width) act, differentiable
//         features_1, features_2, ...  the same for the stream after the layers that are tapped
// Of several pipeline stages the first has the embedding and pixels, the last the norm after the layers and features;
// every stage reads places. Between them travels
//         stream    (P, width) f32, differentiable: the residual stream after a stage's layers
//
// VE-1 (own image): a patch attends to all patches of its image and to no others, however the micro-batch is packed. An
//       image ends when the sample or the image number changes.
// VE-2 (positions): with positions "learned", a patch takes the table's entry row * columns + column. `columns` is the
//       width of the table's grid: image_size / patch_size for SigLIP's weights (a smaller image takes the entries of
//       the grid's first rows and columns, without interpolation), or the width of the data's images for a new table.
//       If the images differ in their columns, a new table is without a grid, also after it is stored: `columns` is the
//       image's. With "2d" a patch takes the sum of its row's entry and its column's entry (NaViT, Dehghani et al.
//       2023, arXiv 2307.06304). An image beyond the tables is an error: of the job's check, or with its sample's name.
//       With rotary positions, queries and keys turn by row and column, after or instead of a table (Qwen2-VL, Wang et
//       al. 2024, arXiv 2409.12191); a table may also be stretched over each image (encoder_rows.hpp).
// VE-3 (ranks): VE-1 and VE-2 also hold for images whose patches are on several ranks: every rank has the places and
//       image boundaries of the full micro-batch, but only its rows of pixels and features. Patch embedding, position
//       tables and norms are replicated; layers are split as in transformer_block.hpp.
// VE-4 (places): only `places` states what a row is: features are the same in any order of an image's rows. With
//       whole_tiles an image has each place of the table's grid once, and the class row if the model has one; other
//       images are refused with the sample's name. A class row takes the table's first entry, patches the next ones.
// VE-5 (windows): in layers with windows a patch attends only to the patches of its window (encoder_rows.hpp), as in
//       Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923). Rows are sorted by window before the first layer and back after
//       the last; over ranks both gather the rows of all ranks.
// VE-6 (sounds): the window before a sound's first frame is zeros to the second convolution. Its table of positions and
//       the bias of keys, which the model lacks, stay as they are in training: both have a gradient of zero.
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
    /// Reads the shape keys; `data` stays empty. Throws JobError.
    static Options read(const JobTable& table, Modality modality = Modality::image) {
      return {read_vision_shape(table, modality), {}};
    }
  };
  /// Throws JobError if the shape is not an encoder's, or does not fit the data or the layout.
  VisionEncoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  /// Throws JobError, naming the sample, for an image beyond the position tables.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Returns the cost of the stage.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return state_; }
  /// Returns true for layers that are not run, the pooling head, a text model and buffers, which full models store.
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override { return hf_vision_config_text(config_); }
  [[nodiscard]] std::vector<std::string> notes() const override;
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  [[nodiscard]] bool recomputes() const override { return true; }
  [[nodiscard]] ProductParameters products() override;
  void freeze() override;
  /// Returns whether it is frozen and on a single rank: with several ranks collectives keep passes from overlapping.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

  [[nodiscard]] const VisionConfig& vision() const { return config_; }

 private:
  struct Images;  // where images begin, and each row's entries in two tables

  /// Returns whether a layer that is run, from 0 on, is in this stage.
  [[nodiscard]] bool has_layer(std::int64_t layer) const {
    return layer >= stage_.first_layer && layer < stage_.first_layer + stage_.layers;
  }
  void build();
  void build_embedding(ParameterBuilder& add);
  void build_convolutions(ParameterBuilder& add, const std::string& prefix);
  BlockWeights layer(ParameterBuilder& add, const std::string& prefix) const;
  /// Adds a norm over the width.
  [[nodiscard]] Affine added_norm(ParameterBuilder& add, const std::string& name) const;
  /// Adds products of equal height as a parameter prefix + joined, stored under prefix + names.
  [[nodiscard]] Affine stacked(ParameterBuilder& add, const std::string& prefix, const char* joined,
                               const std::vector<const char*>& names, std::int64_t rows, bool biases) const;
  [[nodiscard]] Images images_of(Tape& tape, const Inputs& inputs) const;
  /// Returns the stream before the stage's first layer, (P_t, width) f32, in the order of the layers' windows.
  [[nodiscard]] Stream incoming(Tape& tape, const Inputs& inputs, const Images& images);
  /// Returns the stream after the layers [first, end).
  [[nodiscard]] Stream transformed(Tape& tape, Stream x, std::int64_t first, std::int64_t end,
                                   const Images& images) const;
  /// Returns the rank's patches with their positions, (P_t, width) f32.
  [[nodiscard]] Var embedded(Tape& tape, const Inputs& inputs, const Images& images);
  /// Returns the same of sounds.
  [[nodiscard]] Var convolved(Tape& tape, const Inputs& inputs, const Images& images);
  /// Returns the positions of the rank's rows, (P_t, width) f32.
  [[nodiscard]] Var positions_of(Tape& tape, const Images& images, const RowRange& own);
  /// Lets the backward pass end with gradients of zero for biases of keys that the model lacks.
  void hold_key_biases(Tape& tape);
  /// Returns the rank's part of the rows `rows` of x (P_t, C), which are numbers of all ranks' rows; x if it is empty.
  [[nodiscard]] Var arranged(Tape& tape, const Var& x, const Images& images,
                             const std::vector<std::int32_t>& rows) const;

  SectionContext context_;
  VisionConfig config_;
  PictureGrids pictures_;  // grids of the data's images
  Stage stage_;            // with the number of its layers
  BlockOptions block_;
  Parameters parameters_;
  Affine patch_embedding_;             // for sounds the first convolution's weight
  Affine second_convolution_;          // for sounds
  Parameter* first_table_ = nullptr;   // positions; "2d": rows; with class rows: class embedding, patch bias; for
                                       // sounds the first convolution's bias; or null
  Parameter* second_table_ = nullptr;  // "2d": columns; with class rows, and for sounds: positions
  Affine pre_norm_;
  std::vector<BlockWeights> layers_;
  Affine final_norm_;
  std::vector<StateEntry> state_;
  bool frozen_ = false;
};

}  // namespace maestro
