// SPDX-License-Identifier: Apache-2.0
// A language model with its loss that reads images: rows of `visual` take the positions of image tokens (LLaVA, Liu et
// al. 2023). Decoder body and output layer are those of decoder_lm.
//
// Inputs  tokens   (M) i32; -1 marks a position that takes the next row of visual, in order within its sample
//         targets  (M) i32 (-1: ignored)
//         visual   (P, width) act of the projector, optional, differentiable
// No outputs; reports loss and ce, their weights the number of targets, and when it validates exact_match: the share of
// samples with targets whose every target is the largest logit, as greedy decoding would give it.
//
// VD-1 (image positions): the hidden input at an image position is its row of visual, and with learned positions plus
//       the position's.
// VD-2 (rows without targets): rows without a target go neither through the last layer's feed-forward network nor
//       through final norm and output layer.
// VD-3 (any micro-batch): a micro-batch without visual, without image tokens or without targets is as good as any
//       other.
// VD-4 (frozen): a frozen decoder still hands gradients to visual.
// VD-5 (ranks): over ranks every rank has all tokens and targets, and the rows of visual that its positions take are
//       those of the whole micro-batch's order; a sample that is sharded matches exactly when its rows on every rank
//       do. Under a tensor group VD-2 saves the output layer alone: rows without a target go through the last layer's
//       feed-forward network and the final norm.
// VD-6 (stages): of several pipeline stages the first has tokens and visual, and refuses a mismatch of them; the last
//       has targets, reports, and has the savings of VD-2. A micro-batch without targets goes through all layers of the
//       other stages, which have no targets. See decoder_section.hpp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sections/decoder/decoder_section.hpp"

namespace maestro {

class VisionLanguageDecoder final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    std::optional<DType> visual;  ///< precision of the projector; none: this section's
    DataShape data;
    /// Shape keys; the section that key `projector` names ("projector" unless given) sets visual's precision. Throws
    /// JobError.
    static Options read(const JobTable& table, const JobTable& root);
  };
  /// Throws JobError for a decoder that does not fit the data or the layout.
  VisionLanguageDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  /// Throws JobError, naming the sample and on every rank, when it has another number of image tokens than rows of
  /// visual.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// As decoder_lm's, less the savings at image positions (VD-2). An upper bound: which words have targets depends on
  /// the data.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;

  /// Logits (S, vocabulary) f32 of the token after each sample's last; `targets` may be unconnected. Every sample has
  /// a token. On a single rank and one stage only.
  [[nodiscard]] Var next_token_logits(Tape& tape, const Inputs& inputs);

 private:
  /// With images in their places.
  [[nodiscard]] Var embedded(Tape& tape, const Inputs& inputs) override;
  /// x (M_t, width) with the rows of visual that the rank's image positions take; `marked` are those of all ranks.
  [[nodiscard]] Var with_own_images(Tape& tape, const Var& x, const Inputs& inputs,
                                    std::span<const std::int32_t> marked) const;
  /// FLOPs that image positions save in the last layer, and behind it (VD-2).
  [[nodiscard]] double saved_in_last_layer(const SampleShape& sample) const;
  [[nodiscard]] double saved_behind_layers(const SampleShape& sample) const;
  /// Last stage only: (N, width) act behind the final norm, of the rows `wanted` (N) i32 of the context part, or (M_c,
  /// width) of all when that is undefined.
  [[nodiscard]] Var states(Tape& tape, const Inputs& inputs, const Block& wanted);
  /// From states() of those rows of the context part that have a target.
  void put_exact_match(Tape& tape, const Inputs& inputs, const Var& states, Outputs& outputs);
  /// (N, 1) i32, N rows of states(): the tokens of the largest logits.
  [[nodiscard]] Block best_of(Tape& tape, const Var& states);
  /// The same of all context parts, in row order, on the first of them; every other part gets no rows.
  [[nodiscard]] Block best_of_parts(Tape& tape, const Inputs& inputs, const Block& best) const;
  /// The token of the largest logit of each row with a target, once the device has found it; and its target.
  struct Answers {
    std::vector<std::int32_t> best, wanted;
    std::vector<std::size_t> sample_of;  ///< of each row
    std::size_t samples = 0;
    /// How many samples have a row with another token than it should have.
    [[nodiscard]] std::int64_t missed() const;
  };
  /// `best` of all rows with a target.
  [[nodiscard]] static Answers answers_of(const Tape& tape, const Inputs& inputs, const Block& best);

  DType visual_;
};

}  // namespace maestro
