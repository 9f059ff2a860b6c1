// SPDX-License-Identifier: Apache-2.0
// A language model with its loss that reads images: rows of `visual` take the positions of image tokens (LLaVA, Liu et
// al. 2023). Decoder body and output layer are the same as in decoder_lm.
//
// Inputs  tokens   (M) i32; -1 marks a position that takes the next row of visual, in order within its sample
//         targets  (M) i32 (-1: ignored)
//         visual   (P, width) act, with the projector's precision, optional, differentiable
//         heard    (H, width) as visual, for positions of sounds, if the data have images and sounds
// No outputs; reports loss and ce, weighted by the number of targets, and for validation exact_match: among samples
// with targets, the share for which every target has the largest logit, as in greedy decoding.
//
// VD-2 (rows without targets): rows without a target skip the last layer's feed-forward network, the final norm and the
//       output layer.
// VD-3 (any micro-batch): a micro-batch may be without visual, without image tokens or without targets.
// VD-4 (frozen): a frozen decoder passes gradients to visual.
// VD-5 (ranks): every rank has all targets, and a sharded sample matches only if its rows on every rank match. With a
//       tensor group VD-2 saves only the output layer: rows without a target pass the last layer's feed-forward network
//       and the final norm.
// VD-6 (stages): the first pipeline stage has tokens and visual, and refuses a mismatch between them; the last has
//       targets, reports metrics, and makes the savings of VD-2. A micro-batch without targets passes all layers of the
//       other stages, which never receive targets. See decoder_section.hpp.
#pragma once

#include <span>
#include <vector>

#include "sections/decoder/decoder_section.hpp"

namespace maestro {

class VisionLanguageDecoder final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    VisualRows visual;  ///< what the projector sends
    DataShape data;
    VisualRows heard = {};  ///< what the projector of sounds sends
    /// Reads the shape keys; the sections that the keys `projector` and `audio_projector` name (default: the section
    /// with this name) set `visual` and `heard`. Throws JobError.
    static Options read(const JobTable& table, const JobTable& root);
  };
  /// Throws JobError if the decoder does not fit the data or the layout.
  VisionLanguageDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  /// Throws JobError on every rank, with the sample's name, if it has more or fewer image tokens than rows of visual.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Returns decoder_lm's cost minus the savings at image positions (VD-2). It is an upper bound, as the data decide
  /// which words have targets.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;

 private:
  /// Returns the FLOPs that image positions save in the last layer and after it (VD-2).
  [[nodiscard]] double saved_in_last_layer(const SampleShape& sample) const;
  [[nodiscard]] double saved_behind_layers(const SampleShape& sample) const;
  /// Returns (N, width) act after the final norm, for the context part's rows `wanted` (N) i32, or (M_c, width) for all
  /// rows if `wanted` is undefined. Last stage only.
  [[nodiscard]] Var states(Tape& tape, const Inputs& inputs, Outputs& outputs, const Block& wanted);
  /// Reports exact_match from states() for the context part's rows with a target.
  void put_exact_match(Tape& tape, const Inputs& inputs, const Var& states, Outputs& outputs);
  /// Returns the tokens with the largest logits for N rows from states(), (N, 1) i32.
  [[nodiscard]] Block best_of(Tape& tape, const Var& states);
  /// Gathers best_of() of all context parts, in row order, on the first part; the other parts get no rows.
  [[nodiscard]] Block best_of_parts(Tape& tape, const Inputs& inputs, const Block& best) const;
  /// The token with the largest logit, once the device has found it, and the target, for each row with a target.
  struct Answers {
    std::vector<std::int32_t> best, wanted;
    std::vector<std::size_t> sample_of;  ///< sample of each row
    std::size_t samples = 0;
    /// Returns the number of samples with a wrong token in some row.
    [[nodiscard]] std::int64_t missed() const;
  };
  /// Returns the answers from `best` for all rows with a target.
  [[nodiscard]] static Answers answers_of(const Tape& tape, const Inputs& inputs, const Block& best);
};

}  // namespace maestro
