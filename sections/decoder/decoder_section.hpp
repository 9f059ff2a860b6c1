// SPDX-License-Identifier: Apache-2.0
// Common base of every section with a decoder body: the options, the body's parameters and their stored form, and the
// partition into pipeline stages.
//
// Of several stages the first has the embedding and its inputs; the last has final norm, output layer and everything
// that a section adds after the layers. Between them travels
//   stream   (M, width) f32, differentiable: the residual stream after a stage's layers; over ranks, rows of each rank
// If the model is tied and has its output layer, the last stage holds a copy of the embedding (tied()).
//
// If the data have images, the first stage also takes the rows of `visual` for the positions of image tokens (LLaVA,
// Liu et al. 2023):
//   visual  (V, width) act, with the projector's precision, optional, differentiable
// and if the data also have sounds (DataShape::sounds)
//   heard   (H, width) as visual, for the positions of sounds
// and if the projector sends rows for further layers, the stage of the k-th layer takes (and tokens, in every stage)
//   visual_k  as visual
// and every stage, if the model's positions or attention depend on images (DecoderConfig::needs_marks()):
//   marks   (M, 4) i32, optional (Corpus::read_marks())
//
// The stage of the layer that reads a memory (DecoderConfig::memory, memory_layer.hpp) takes its rows:
//   memory  (M, columns) act, with the memory's precision, differentiable; over ranks, rows of each rank
//
// IP-1 (image positions): the hidden input at an image position is its row of visual, plus the position's embedding if
//       positions are learned. A sample with more or fewer image tokens than rows of visual is refused by its number.
//       The rows of visual_k are added to the stream at these positions after the k-th layer (DeepStack, Meng et al.
//       2024, arXiv 2406.04334).
// IP-2 (ranks): every rank has all tokens, and its positions take their rows of visual in the full micro-batch's order.
// IP-3 (marks): the marks state positions and the rows that a row sees, the same in every stage and on every
//       rank. A sample with images and without marks is refused if the model needs them.
// AO-1 (adapters alone): with SectionContext::lora the section's parameters are the adapters; the weights are frozen,
//       held as in a frozen section, and are in no gradient, reduction, moment or checkpoint.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sections/decoder/decoder_shape.hpp"
#include "sections/decoder/decoder_stack.hpp"
#include "sections/section.hpp"
#include "sections/section_ranks.hpp"

namespace maestro {

/// The output layer of a decoder: tied, separate, or none because another section holds it.
enum class OutputLayer : std::uint8_t { none, own_or_tied };

/// A Section that owns a decoder body and, if wanted, its output layer; or a pipeline stage of it.
class DecoderSection : public Section {
 public:
  /// Returns the adapters, if the section has some, otherwise the weights.
  Parameters& parameters() override { return context_.lora.given() ? adapters_ : parameters_; }
  [[nodiscard]] std::vector<StateEntry> state() override;
  [[nodiscard]] NamedParameters weights() override;
  [[nodiscard]] bool takes_adapters() const override { return true; }
  [[nodiscard]] std::optional<AdapterConfig> adapters() const override;
  /// Returns true for the body's parts in other stages, buffers, and the output layer if it is not a parameter here.
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] ProductParameters products() override;
  /// Returns the costs of all layers, regardless of the stage; after: the output layer.
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;
  [[nodiscard]] Parameter* tied() override;
  /// Returns the configuration of the complete model, regardless of the stage.
  [[nodiscard]] std::string config_json() const override;
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  /// Keeps only the packed forms of the matrices, including the backward pass's forms if gradients pass through; the
  /// section can then no longer be stored or loaded.
  void freeze() override;
  /// Returns true if frozen (a pass then only reads) on one rank: ranks meet in collectives, so passes never overlap.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

  [[nodiscard]] bool recomputes() const override { return true; }

  [[nodiscard]] const DecoderConfig& decoder() const { return stack_.config(); }
  /// Sets the hook into the choice of experts in later passes, which it must outlive; null, as at first: none.
  void set_routes(RouteHook* hook) { routes_ = hook; }
  /// Returns the logits (1, vocabulary) f32 of the token after the rows of `tokens` (N), which continue the sequence in
  /// `caches`, a cache for each layer; or (N, vocabulary), if the rows continue CachedSequences. `visual` (V, width)
  /// act has a row for each of the V image tokens: the rows of visual, visual_1, ...; empty: there is none. `heard` has
  /// the rows of sounds, `memory` the tokens' rows of a memory, if the decoder reads one; its filter's cache is the
  /// last. On a single rank and one stage, with an output layer.
  [[nodiscard]] Var cached_logits(Tape& tape, std::span<const std::int32_t> tokens, const SequenceLayout& layout,
                                  std::span<const LayerCache> caches, std::span<const Tensor> visual = {},
                                  const Tensor& heard = {}, const Var& memory = {});

 protected:
  /// Throws JobError if decoder, data, layout and stage do not fit, see check_decoder, check_parallel_fit and
  /// check_stage.
  DecoderSection(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data,
                 OutputLayer output_layer);

  [[nodiscard]] const SectionContext& context() const { return context_; }
  [[nodiscard]] DecoderStack& stack() { return stack_; }
  [[nodiscard]] bool first_stage() const { return context_.stage.first(); }
  [[nodiscard]] bool last_stage() const { return context_.stage.last(); }
  /// Returns the ports of this stage: tokens and images in the first stage, `behind`, the ports after the layers, in
  /// the last, and streams between two stages.
  [[nodiscard]] Ports stage_ports(const Ports& behind) const;

  /// Returns the output layer (vocabulary of the rank, width): the token embedding if tied, or a copy of it in another
  /// stage. Only with OutputLayer::own_or_tied, in the last stage.
  [[nodiscard]] Parameter& head() { return *head_; }
  /// Returns the logits (N, vocabulary of the rank) f32 of hidden (N, width) act.
  [[nodiscard]] Var logits(Tape& tape, const Var& hidden);
  /// Returns the part of the output layer that head() is.
  [[nodiscard]] VocabularyPart head_part() const { return vocabulary_part(context_.parallel, decoder().vocabulary); }
  /// Returns the embedding of "tokens" with the rows of "visual" at image positions, first stage only: (M_t, width)
  /// f32, Sharding::rank_rows. Throws JobError on every rank for IP-1.
  [[nodiscard]] Var embedded(Tape& tape, const Inputs& inputs);
  /// Returns the residual stream before the stage's layers: embedded() or "stream".
  Var incoming(Tape& tape, const Inputs& inputs);
  /// Returns the residual stream after the stage's layers, in the same form as incoming(), or only the rows `wanted`,
  /// as DecoderStack::transformed(). Reports the losses of experts, as the next functions.
  Stream stream(Tape& tape, const Inputs& inputs, Outputs& outputs, const Block& wanted = Block());
  /// Sets all outputs of a stage other than the last: the stream.
  void put_stream(Tape& tape, const Inputs& inputs, Outputs& outputs);
  /// Returns the body's result: (M_t, width) act, Sharding::rank_rows. Last stage only, as the next function.
  Var hidden(Tape& tape, const Inputs& inputs, Outputs& outputs);
  /// Returns the same for all rows of the context part, on each tensor rank: (M_c, width), Sharding::context_rows.
  Var gathered_hidden(Tape& tape, const Inputs& inputs, Outputs& outputs);
  /// Applies the model's soft cap, if it has a cap, to logits (M, V) f32 in place.
  void cap_logits(Tape& tape, const Tensor& logits) const;
  /// Returns whether the layers' experts need all rows, also in a last layer with few wanted rows.
  [[nodiscard]] bool experts_need_all_rows() const { return decoder().experts.judged() || routes_ != nullptr; }
  /// Returns FLOPs and kept bytes of the stage's layers and, if it is here, the output layer.
  [[nodiscard]] Cost decoder_cost(const SampleShape& sample) const;

 private:
  /// Adds the rows of a port to the stream at the rank's positions with `token`, which is one of `known`, all tokens.
  [[nodiscard]] Var with_rows(Tape& tape, const Inputs& inputs, Var x, const char* port,
                              std::span<const std::int32_t> known, std::int32_t token) const;
  /// Returns the rows of a port that the rank's image positions take; `marked` are all ranks' positions.
  [[nodiscard]] AddedRows own_rows(Tape& tape, const Inputs& inputs, const std::string& port,
                                   std::span<const std::int32_t> marked) const;
  /// Returns the rows that the stage's layers add.
  [[nodiscard]] std::vector<AddedRows> added_rows(Tape& tape, const Inputs& inputs) const;
  /// Returns whether the stage has the layer that reads a memory.
  [[nodiscard]] bool takes_memory() const;
  /// Returns whether the stage has the layer after which rows of visual_(tap + 1) are added.
  [[nodiscard]] bool takes_tap(std::int64_t tap) const;
  [[nodiscard]] Parameter* add_output_layer(const ParameterInit& init);
  /// Keeps only the packed forms of the weights' matrices.
  void freeze_weights(bool passes_gradient);
  /// Returns whether the output layer is a parameter that does not embed too: of an untied model, or a copy.
  [[nodiscard]] bool separate_head() const { return head_ != nullptr && !(decoder().tied && first_stage()); }

  SectionContext context_;
  OutputLayer output_layer_;
  bool reads_images_;           // the data have images
  VisualRows visual_;           // its precision is given
  std::optional<DType> heard_;  // precision of the rows of sounds; none: the data lack sounds next to images
  Parameters parameters_;       // all parameters, or the frozen weights below adapters
  Parameters adapters_;
  DecoderStack stack_;  // after the parameters: refers to them
  RouteHook* routes_ = nullptr;
  bool frozen_ = false;
  Parameter* head_ = nullptr;                        // null without an output layer in this stage
  mutable std::vector<std::string> names_of_model_;  // names in the complete body, sorted; made by ignores() of a stage
};

/// Returns the rows with this token, in order.
[[nodiscard]] std::vector<std::int32_t> rows_of_token(std::span<const std::int32_t> tokens, std::int32_t token);
/// Returns the rows whose token is `image_token`, in order.
[[nodiscard]] std::vector<std::int32_t> image_rows(std::span<const std::int32_t> tokens);
/// Returns a micro-batch's targets in the form of the losses, (M_c) i32.
[[nodiscard]] Tensor targets_of(const Inputs& inputs);

inline const Port tokens_port{"tokens", DType::i32, 1, false, false};
inline const Port targets_port{"targets", DType::i32, 1, false, false};

}  // namespace maestro
