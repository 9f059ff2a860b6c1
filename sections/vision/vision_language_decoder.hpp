// A language model with its loss that reads images: rows of `visual` take the positions of image tokens (LLaVA, Liu et
// al. 2023). Decoder body and output layer are those of decoder_lm.
//
// Inputs  tokens   (M) i32; -1 marks a position that takes the next row of visual, in order within its sample
//         targets  (M) i32 (-1: ignored)
//         visual   (P, width) act of the projector, optional, differentiable
// No outputs; reports loss and ce, their weights the number of targets, and when it validates exact_match: the share of
// samples with targets whose every target is the largest logit, as greedy decoding would give it.
//
// VD-1: the hidden input at an image position is its row of visual, and with learned positions plus the position's.
// VD-2: rows without a target go neither through the last layer's feed-forward network nor through final norm and
//       output layer.
// VD-3: a micro-batch without visual, without image tokens or without targets is as good as any other.
// VD-4: frozen, it still hands gradients to visual.
#pragma once

#include <optional>
#include <span>

#include "sections/decoder/decoder_section.hpp"

namespace maestro {

class VisionLanguageDecoder final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    std::optional<DType> visual;  ///< precision of the projector; none: this section's
    DataShape data;
    /// Shape keys; the section that key `projector` names ("projector" unless given) tells visual's precision. Throws
    /// JobError.
    static Options read(const JobTable& table, const JobTable& root);
  };
  /// Throws JobError for a decoder that does not fit the data.
  VisionLanguageDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  /// Throws JobError, naming the sample, when it has another number of image tokens than rows of visual.
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// As decoder_lm's, less what image positions save (VD-2). An upper bound: which words have targets only the data
  /// knows.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;

  /// Logits (S, vocabulary) f32 of the token after each sample's last; `targets` may be unconnected. Every sample has
  /// a token.
  [[nodiscard]] Var next_token_logits(Tape& tape, const Inputs& inputs);

 private:
  [[nodiscard]] Var embedded(Tape& tape, const Inputs& inputs);
  /// (N, width) act behind the final norm, of the rows `wanted` (N) i32, or of all when that is undefined.
  [[nodiscard]] Var states(Tape& tape, const Inputs& inputs, const Block& wanted);
  void put_exact_match(Tape& tape, const Inputs& inputs, const Var& states, std::span<const std::int32_t> rows,
                       Outputs& outputs);

  DType visual_;
};

}  // namespace maestro
