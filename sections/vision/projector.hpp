// SPDX-License-Identifier: Apache-2.0
// Maps vision features to a decoder's embedding space: linear, GELU, linear (LLaVA 1.5, Liu et al. 2023), or a single
// linear product (Idefics3, Laurencon et al. 2024), after a norm if the model has one (Qwen2-VL, Wang
// et al. 2024; InternVL, Chen et al. 2023; Qwen2-Audio, Chu et al. 2024).
//
// Inputs  features  (P, vision width) act, with the vision section's precision, differentiable
//         sources   (V, 4) i32, weights (V, 4) f32: only with `newline`; see row_mix.hpp
//         places    (P, 3) i32: only with drops_rest; the first column is the number of the tile in its sample
//         features_1, features_2, ...  as features, with `taps` (Qwen3-VL, Bai et al. 2025)
// Outputs visual    (V, width) act, differentiable
//         visual_1, visual_2, ...  the same for the features of each tap, by separate products
//
// PN-1 (rows): with tile_rows, each sample's features are tiles of this many rows, and the first row of a tile, its
//       class row, is dropped. Then the mean of each `pool` consecutive rows is one row, with norm before_join a norm
//       is applied to each row, and each `join` consecutive rows are one row, side by side. With drops_rest, rows at
//       the end of a tile that do not fill a block of `pool` are dropped. A sample with other numbers of rows is
//       refused by its number. With newline, the rows of features, once projected, are mixed into the decoder's rows.
// PN-2 (ranks): each rank has separate rows of both ports. The tensor group gathers the features of its context part.
//       Of two products the first is cut by its weight's rows, the second by its weight's columns, and the sum is
//       scattered by rows; norm and a single product are replicated, and each rank computes its own rows. With join,
//       pool, tile_rows or newline the numbers of rows differ, and a context degree above 1 is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sections/parameter_builder.hpp"
#include "sections/section.hpp"
#include "sections/vision/vision_shape.hpp"

namespace maestro {

class Projector final : public Section {
 public:
  struct Options {
    ProjectorConfig projector;
    std::optional<DType> features;  ///< precision of the vision section; none: this section's
    DataShape data;
    /// Reads the options. `vision_width` defaults to the width of the section that key `vision` names (default
    /// "vision"), `width` to the width of the section that key `decoder` names (default "decoder"). With `weights` the
    /// folder's config.json takes precedence over these sections. Throws JobError.
    /// For sounds the key of the first section is `audio`, with this default.
    static Options read(const JobTable& table, const JobTable& root, Modality modality = Modality::image);
  };
  /// Throws JobError if a width is below 1 or below the tensor degree, and for PN-2.
  Projector(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  /// Throws JobError for PN-1.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Returns 2 V (m Cv H + H C) FLOPs for V rows, H being the columns between the products, or 2 V m Cv C with a single
  /// product; Cv is the vision section's width, m is `join`, and with newline V counts the features. Taps cost the same
  /// each.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return state_; }
  /// Returns true for the other parts of a vision-language model.
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override { return hf_projector_config_text(config_); }
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  [[nodiscard]] ProductParameters products() override;
  void freeze() override;
  /// Returns whether it is frozen and on a single rank: with several ranks collectives keep passes from overlapping.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

 private:
  /// A norm, if the model has it, and one or two products.
  struct Branch {
    Affine norm, first, second;
  };
  [[nodiscard]] bool single() const { return config_.products == 1; }
  [[nodiscard]] std::int64_t hidden() const { return config_.hidden > 0 ? config_.hidden : config_.width; }
  /// Returns whether the ports differ in their numbers of rows.
  [[nodiscard]] bool changes_rows() const {
    return config_.join > 1 || config_.pool > 1 || config_.tile_rows > 0 || config_.newline;
  }
  /// Returns the number of features that become one row.
  [[nodiscard]] std::int64_t block() const { return config_.join * config_.pool; }
  [[nodiscard]] std::int64_t joined_columns() const { return config_.join * config_.vision_width; }
  void build();
  /// Adds the norm's parameters, if there is one, with names that begin with `prefix`.
  [[nodiscard]] Affine norm(ParameterBuilder& add, const std::string& prefix, FeatureNorm norm) const;
  /// Adds the parameters of two products, with names that begin with `prefix`.
  [[nodiscard]] Branch branch(ParameterBuilder& add, const std::string& prefix, FeatureNorm norm) const;
  [[nodiscard]] Var normed(Tape& tape, const Var& x, const Affine& norm) const;
  /// Returns the features that the products take, (V, joined_columns()) act, of all rows that they need.
  [[nodiscard]] Var taken(Tape& tape, const Inputs& inputs, const std::string& port, const Branch& branch,
                          FeatureNorm norm) const;
  /// Returns a part of (rows, width) that adds up over the tensor ranks.
  [[nodiscard]] Var projected(Tape& tape, const Var& x, const Branch& branch) const;
  /// Returns the features' rows that are used, in order.
  [[nodiscard]] std::vector<std::int32_t> used_rows(const Inputs& inputs) const;
  /// Returns whether a row is used, by its number in a sample whose rows are [first, first + count).
  [[nodiscard]] std::vector<bool> used_of_sample(const Inputs& inputs, std::int64_t first, std::int64_t count) const;
  /// Returns (V, joined_columns()) act from all features (PN-1); for a single product only the rank's rows.
  [[nodiscard]] Var joined(Tape& tape, const Var& features, const Inputs& inputs) const;
  /// Returns the rank's rows of visual. `parts` (P, width) adds up over the tensor ranks to the projected features.
  [[nodiscard]] Var mixed_rows(Tape& tape, const Var& parts, const Inputs& inputs);

  SectionContext context_;
  ProjectorConfig config_;
  DType features_;
  Parameters parameters_;
  std::vector<StateEntry> state_;
  Branch main_;
  std::vector<Branch> taps_;
  Parameter* newline_ = nullptr;
  bool frozen_ = false;
};

}  // namespace maestro
