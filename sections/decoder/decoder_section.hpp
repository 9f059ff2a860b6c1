// What every section around a decoder body has in common: the options, the body's parameters and their stored form.
#pragma once

#include <string>
#include <vector>

#include "sections/decoder/decoder_shape.hpp"
#include "sections/decoder/decoder_stack.hpp"
#include "sections/section.hpp"
#include "sections/section_ranks.hpp"

namespace maestro {

/// The output layer of a decoder: tied, its own, or none because another section holds it.
enum class OutputLayer : std::uint8_t { none, own_or_tied };

/// A Section that owns a decoder body and, when wanted, its output layer.
class DecoderSection : public Section {
 public:
  Parameters& parameters() override { return parameters_; }
  [[nodiscard]] std::vector<StateEntry> state() override;
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override;
  /// Keeps only the packed forms of the matrices, those of the backward pass too when gradients pass through; the
  /// section can then no longer be stored or loaded.
  void freeze() override;
  /// Once frozen, a forward pass only reads; but ranks meet in collectives, one forward pass at a time.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

  [[nodiscard]] const DecoderConfig& decoder() const { return stack_.config(); }

 protected:
  /// Throws JobError when decoder, data and layout do not fit, see check_decoder and check_parallel_fit.
  DecoderSection(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data,
                 OutputLayer output_layer);

  [[nodiscard]] const SectionContext& context() const { return context_; }
  [[nodiscard]] DecoderStack& stack() { return stack_; }
  /// The output layer (vocabulary of the rank, width): the token embedding when tied. Only with
  /// OutputLayer::own_or_tied.
  [[nodiscard]] Parameter& head() { return *head_; }
  /// Which part of the output layer head() is.
  [[nodiscard]] VocabularyPart head_part() const { return vocabulary_part(context_.parallel, decoder().vocabulary); }
  /// The body's result for the micro-batch's "tokens": (M_t, width), Spread::rank_rows.
  Var hidden(Tape& tape, const Inputs& inputs);
  /// The same for all rows of the context part, on each of its tensor ranks: (M_c, width), Spread::context_rows.
  Var gathered_hidden(Tape& tape, const Inputs& inputs);
  /// FLOPs and kept bytes of body and, when it is here, output layer.
  [[nodiscard]] Cost decoder_cost(const SampleShape& sample) const;

 private:
  [[nodiscard]] bool owns_head() const { return head_ != nullptr && !decoder().tied; }

  SectionContext context_;
  Parameters parameters_;
  DecoderStack stack_;  // after parameters_: refers to them
  bool frozen_ = false;
  Parameter* head_ = nullptr;  // the embedding when tied; null without an output layer
};

/// Targets of a micro-batch as the losses want them, (M_c) i32.
[[nodiscard]] Tensor targets_of(const Inputs& inputs);

inline const Port tokens_port{"tokens", DType::i32, 1, false, false};
inline const Port targets_port{"targets", DType::i32, 1, false, false};

}  // namespace maestro
