// SPDX-License-Identifier: Apache-2.0
// The body of a decoder-only language model: embedding, layers, final norm. Sections add the output layer or loss. A
// pipeline stage has some of the layers; the first has the embedding, the last the final norm.
//
// GPT-2 family (Radford et al. 2019): layer norm before each branch, learned positions, GELU, biases. All others, Llama
// (Touvron et al. 2023) first: RMS norms, rotary positions, a gated feed-forward network, grouped-query attention
// (Ainslie et al. 2023), and what the fields of DecoderConfig add. Query, key and value projections are a single
// parameter, and so are gate and up projections; state() names their rows as Hugging Face does.
//
// Initial values as GPT-2: matrices normal(0, init_std), those that write to the residual stream scaled by 1 / sqrt(2
// layers), norms 1 (their offset included), biases zero. Weight decay applies to every matrix, token and
// position embeddings included (as nanoGPT: parameters of two dimensions), and to nothing else.
//
// Adapters (SectionContext::lora) begin as those of PEFT do: A uniform in +-1 / sqrt(K), which is He's (2015) uniform
// initialisation with a = sqrt(5), and B zero, so that the model begins as its weights are. Both decay, as every
// matrix.
//
// DK-1 (same bits): losses and gradients are those of values that are kept, whatever recompute() is.
// DK-2 (less kept): with recompute() the tape keeps the streams before groups of layers, and the values of a group
//       while its backward pass runs.
// DK-3 (PEFT's modules): every module of Hugging Face's model that has an adapter has one A and one B, also where this
//       stack holds several modules in a parameter.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/decoder_config.hpp"
#include "runtime/job/lora_config.hpp"
#include "runtime/ops/low_rank.hpp"
#include "sections/parameter_init.hpp"
#include "sections/section.hpp"
#include "sections/transformer_block.hpp"

namespace maestro {

/// The adapters that a stack has beside its weights: their parameters, apart from the stack's, and their settings.
struct StackAdapters {
  Parameters* parameters = nullptr;  ///< null: none
  LoraConfig lora;
};

// Over ranks: the token embedding is sharded over the vocabulary, positions and norms are replicated, layers as in
// transformer_block.hpp. M rows of the micro-batch, M_c of a context part, M_t of a rank; all the same on a single
// rank.

/// Registers its parameters with a section's Parameters, which must outlive it. Used on the section's device thread.
/// Arrays of a layout must live until the backward pass; a layout is of all M rows.
class DecoderStack {
 public:
  /// `config`, of the whole model, must be resolved and fit layout (check_parallel_fit) and stage (check_stage); call
  /// before Parameters::allocate().
  DecoderStack(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
               const ParallelContext& parallel = {}, const Stage& stage = {}, const StackAdapters& adapters = {});

  /// (M_t, width) f32 from tokens (M_c) i32: token embeddings, and with learned positions theirs. A token of -1 gives
  /// zeros for the former. First stage only.
  Var embedded(Tape& tape, const Tensor& tokens, const SequenceLayout& layout);
  /// From now on the backward pass computes the values of layers again, in groups of so many; 0: it has them kept.
  void recompute(std::int64_t layers) { recompute_ = layers; }
  /// Of the layers that are here, on a tensor rank.
  [[nodiscard]] const std::vector<BlockOptions>& layer_options() const { return options_; }
  /// All layers of the stage: (M_t, width) f32, or (N, width) f32 of the rows `wanted` (N) i32 when that is defined, as
  /// transformer_block.
  Stream transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted = Block()) const;
  /// The same for rows behind others of a sequence, with a cache of each layer. On a single rank only.
  Stream transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                     std::span<const AttentionCache> caches) const;
  /// The final norm: x's shape, act. Last stage only.
  Var normed(Tape& tape, Stream x) const;

  [[nodiscard]] const DecoderConfig& config() const { return config_; }
  /// The layers that are here.
  [[nodiscard]] const Stage& stage() const { return stage_; }
  /// (vocabulary of the rank, width); the output layer too when the model is tied. First stage only.
  [[nodiscard]] Parameter& token_embedding() { return *tokens_; }
  [[nodiscard]] const std::vector<StateEntry>& state() const { return state_; }
  /// The adapters under PEFT's names, those of a layer behind another's.
  [[nodiscard]] const std::vector<StateEntry>& adapter_state() const { return adapter_state_; }
  /// Parameters that are used in matrix products only, so that a frozen section may keep just their packed forms.
  [[nodiscard]] std::vector<Parameter*> matrices() const { return product_matrices(layers_); }

 private:
  class Builder;

  /// Some of the layers that are here.
  struct LayerRange {
    Tape* tape;
    std::size_t first;
    std::size_t end;
  };
  Stream layers(const LayerRange& range, Stream x, const SequenceLayout& layout, const Block& wanted,
                std::span<const AttentionCache> caches) const;
  /// Options of layer `index` of the whole model.
  [[nodiscard]] BlockOptions options_of(std::int64_t index) const;
  [[nodiscard]] NormTerms norm_terms() const { return {config_.norm_epsilon, config_.norm_offset}; }

  DecoderConfig config_;
  ParallelContext parallel_;
  Stage stage_;
  std::int64_t recompute_ = 0;
  std::vector<BlockOptions> options_;  // of the layers that are here
  Parameter* tokens_ = nullptr;
  Parameter* positions_ = nullptr;  // GPT-2 only
  std::vector<BlockWeights> layers_;
  Affine final_norm_;
  std::vector<StateEntry> state_;
  std::deque<LowRank> adapters_;  // stable addresses
  std::vector<StateEntry> adapter_state_;
};

/// Every stored name of the body of a whole model and of its adapters, sorted; `config` must be resolved.
[[nodiscard]] std::vector<std::string> body_names(const DecoderConfig& config, const LoraConfig& lora = {});

/// Elements of the body of a whole model, and of its adapters; `config` must be resolved.
struct BodyElements {
  std::int64_t body = 0;
  std::int64_t adapters = 0;
};
[[nodiscard]] BodyElements body_elements(const DecoderConfig& config, const LoraConfig& lora);

/// Name of the token embedding in Hugging Face's layout of the family.
[[nodiscard]] std::string_view embedding_name(const DecoderConfig& config);
inline constexpr std::string_view head_name = "lm_head.weight";

/// Registers an output layer (vocabulary of the rank, width) of its own. That of a tied model is a copy of the token
/// embedding, under its name and with its initial values.
Parameter& add_head(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
                    const ParallelContext& parallel = {});

/// Buffers that some Hugging Face files carry and no model needs: attention masks and rotary frequencies.
[[nodiscard]] bool is_stored_buffer(std::string_view name);

}  // namespace maestro
