// SPDX-License-Identifier: Apache-2.0
// The body of a decoder-only language model: embedding, layers, final norm. Sections add the output layer or loss. A
// pipeline stage has some of the layers; the first has the embedding, the last the final norm.
//
// GPT-2 family (Radford et al. 2019): layer norm before each branch, learned positions, GELU, biases. All others,
// beginning with Llama (Touvron et al. 2023): RMS norms, rotary positions, a gated feed-forward network, grouped-query
// attention (Ainslie et al. 2023), and the additions in DecoderConfig's fields. Query, key and value projections are a
// single parameter, and so are gate and up projections; state() names their rows as Hugging Face does.
//
// Initial values as GPT-2: matrices normal(0, init_std), scaled by 1 / sqrt(2 layers) if they write to the residual
// stream, norms 1 (their offset included), biases zero. Weight decay applies to every matrix, token and position
// embeddings included (as nanoGPT: parameters of two dimensions), and to nothing else.
//
// A layer of LFM2 may have a gated short convolution in place of attention. Its filters begin uniform in +-1 / sqrt(w),
// as PyTorch's Conv1d, and decay as matrices do.
//
// Adapters (SectionContext::lora) begin as in PEFT: A uniform in +-1 / sqrt(K), which is He's (2015) uniform
// initialisation with a = sqrt(5), and B zero, so that the model begins with its weights' function. Both decay, as
// every matrix.
//
// DK-1 (same bits): recompute() does not change a bit of losses and gradients.
// DK-2 (less kept): with recompute() the tape keeps the streams before groups of layers, and the values of a group
//       while its backward pass runs.
// DK-3 (PEFT's modules): every module of Hugging Face's model that has an adapter has one A and one B, even if this
//       stack holds several modules in a parameter.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/lora_config.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/ops/low_rank.hpp"
#include "sections/memory/memory_layer.hpp"
#include "sections/parameter_init.hpp"
#include "sections/section.hpp"
#include "sections/transformer_block.hpp"

namespace maestro {

/// Adapters of a stack: their parameters, separate from the stack's, and their settings.
struct StackAdapters {
  Parameters* parameters = nullptr;  ///< null: none
  LoraConfig lora;
};

/// Rows that are added to the stream after a layer (DeepStack, Meng et al. 2024), or of a memory that the layer reads
/// before its mixer (memory_layer.hpp).
struct AddedRows {
  std::int64_t layer = 0;  ///< layer of the complete model
  Var rows;                ///< (N, width) act; of a memory (M_t, columns)
  Block at;                ///< (N) i32: the rank's row of the stream that each is added to; undefined: of a memory
};

/// What a pass does with the experts of all layers, apart from their networks. Both need all rows in every layer.
struct ExpertPass {
  std::shared_ptr<ExpertBalance> balance = {};  ///< losses; null: none
  PassRoutes routes = {};                       ///< hook into the choice of experts, and the rows of the pass
};

// Over ranks: the token embedding is sharded over the vocabulary, positions and norms are replicated, layers as in
// transformer_block.hpp. The micro-batch has M rows, a context part M_c, a rank M_t; all are equal on a single rank.

/// Registers its parameters with a section's Parameters, which must outlive it. Used on the section's device thread.
/// Arrays of a layout must live until the backward pass; a layout is of all M rows.
class DecoderStack {
 public:
  /// `config`, of the complete model, must be resolved and fit layout (check_parallel_fit) and stage (check_stage);
  /// call before Parameters::allocate().
  DecoderStack(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
               const ParallelContext& parallel = {}, const Stage& stage = {}, const StackAdapters& adapters = {});

  /// Returns (M_t, width) f32 from tokens (M_c) i32: the sum of token embeddings and learned positions, if any. A token
  /// of -1 has a zero embedding. First stage only.
  Var embedded(Tape& tape, const Tensor& tokens, const SequenceLayout& layout);
  /// Sets the number of layers in a group whose values the backward pass computes again; 0: values are kept.
  void recompute(std::int64_t layers) { recompute_ = layers; }
  /// Returns the options of this stage's layers, on a tensor rank.
  [[nodiscard]] const std::vector<BlockOptions>& layer_options() const { return options_; }
  /// Applies all layers of the stage: (M_t, width) f32, or (N, width) f32 of the rows `wanted` (N) i32 if that is
  /// defined, as transformer_block. With `wanted`, no rows are `added` after the last layer.
  Stream transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted = Block(),
                     const std::vector<AddedRows>& added = {}, const ExpertPass& experts = {}) const;
  /// Does the same for rows that continue a sequence, with a cache for each layer, and then one for the filter of a
  /// memory. On a single rank only.
  Stream transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                     std::span<const LayerCache> caches, const std::vector<AddedRows>& added = {}) const;
  /// Applies the final norm: x's shape, act. Last stage only.
  Var normed(Tape& tape, Stream x) const;

  [[nodiscard]] const DecoderConfig& config() const { return config_; }
  /// Returns the layers of this stage.
  [[nodiscard]] const Stage& stage() const { return stage_; }
  /// Returns (vocabulary of the rank, width), also the output layer if the model is tied. First stage only.
  [[nodiscard]] Parameter& token_embedding() { return *tokens_; }
  [[nodiscard]] const std::vector<StateEntry>& state() const { return state_; }
  /// Returns the adapters under PEFT's names, layer by layer.
  [[nodiscard]] const std::vector<StateEntry>& adapter_state() const { return adapter_state_; }
  /// Returns the parameters that only matrix products use: a frozen section may keep just their packed forms.
  [[nodiscard]] std::vector<Parameter*> matrices() const;

 private:
  class Builder;

  /// A range among this stage's layers.
  struct LayerRange {
    Tape* tape;
    std::size_t first;
    std::size_t end;
    const ExpertPass* experts;
  };
  /// Applies all layers of the stage; `caches` may be empty.
  Stream through(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                 std::span<const LayerCache> caches, const std::vector<AddedRows>& added,
                 const ExpertPass& experts) const;
  Stream layers(const LayerRange& range, Stream x, const SequenceLayout& layout, const Block& wanted,
                std::span<const LayerCache> caches, const std::vector<AddedRows>& added) const;
  /// Returns the options of layer `index` of the complete model.
  [[nodiscard]] BlockOptions options_of(std::int64_t index) const;
  [[nodiscard]] NormTerms norm_terms() const { return {config_.norm_epsilon, config_.norm_offset}; }

  DecoderConfig config_;
  ParallelContext parallel_;
  Stage stage_;
  std::int64_t recompute_ = 0;
  std::vector<BlockOptions> options_;  // options of this stage's layers
  Parameter* tokens_ = nullptr;
  Parameter* positions_ = nullptr;  // GPT-2 only
  std::vector<BlockWeights> layers_;
  Affine final_norm_;
  MemoryWeights memory_;
  std::vector<StateEntry> state_;
  std::deque<LowRank> adapters_;  // stable addresses
  std::vector<StateEntry> adapter_state_;
};

/// Returns every stored name of a complete model's body and its adapters, sorted; `config` must be resolved.
[[nodiscard]] std::vector<std::string> body_names(const DecoderConfig& config, const LoraConfig& lora = {});

/// Element counts of a complete model's body and of its adapters; `config` must be resolved.
struct BodyElements {
  std::int64_t body = 0;
  std::int64_t adapters = 0;
};
[[nodiscard]] BodyElements body_elements(const DecoderConfig& config, const LoraConfig& lora);

/// Returns the token embedding's name in the family's Hugging Face layout.
[[nodiscard]] std::string_view embedding_name(const DecoderConfig& config);
inline constexpr std::string_view head_name = "lm_head.weight";

/// Registers a separate output layer (vocabulary of the rank, width). In a tied model it is a copy of the token
/// embedding, under its name and with its initial values.
Parameter& add_head(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
                    const ParallelContext& parallel = {});

/// Returns whether a name is a buffer of some Hugging Face files that no model needs: attention masks, frequencies.
[[nodiscard]] bool is_stored_buffer(std::string_view name);

}  // namespace maestro
