// SPDX-License-Identifier: Apache-2.0
// The transformer block of every stack in sections/: norm before each branch, attention over packed sequences, a
// feed-forward network, both added to an f32 residual stream (pre-norm, Xiong et al. 2020).
//
// The weights decide the kind of a block: with a bias a norm is a layer norm, without it an RMS norm; a feed-forward
// network of gate and up projection (ffn_in of twice ffn_out's columns) is gated, any other tanh GELU. Norms that are
// left out do nothing: those before the branches, those behind (OLMo 2; Gemma 2 has both), and those of query and key.
//
// Over ranks (M rows of the micro-batch, M_c of a context part, M_t of a rank): norms and residual sums see M_t rows;
// before each branch the tensor group's rows are gathered, (M_c, C); its first product is cut by rows of the weight,
// its second by columns, and the sum over the group goes back in rows, (M_t, C). Attention has all M rows and a part of
// the heads. Without groups all three are M and nothing is exchanged.
#pragma once

#include <utility>
#include <vector>

#include "runtime/ops/parallel_functions.hpp"
#include "sections/parameter_builder.hpp"

namespace maestro {

/// On a tensor rank: its rows of qkv and ffn_in, with their biases, its columns of attention_out and ffn_out, and norms
/// and the other biases whole (TensorCut).
struct BlockWeights {
  Affine attention_norm, qkv, attention_out, ffn_norm, ffn_in, ffn_out;
  Affine behind_attention, behind_ffn;  ///< norms of the branches' results
  Parameter* query_norm = nullptr;      ///< as in HeadNorms
  Parameter* key_norm = nullptr;
};

/// The constants of a model's norms.
struct NormTerms {
  double epsilon = 1e-5;
  double offset = 0;  ///< added to every weight; RMS norms only
};

struct BlockOptions {
  AttentionOptions attention;  ///< heads: those of the tensor rank, which all its context ranks share
  NormTerms norm;
  bool whole_head_norms = false;  ///< query_norm and key_norm are over all heads rather than over each
  GluGate gate = GluGate::silu;
  Communicator* tensor_group = nullptr;
  Communicator* context_group = nullptr;
  const AttentionCache* cache = nullptr;  ///< of the layer, for rows behind others of a sequence; without groups only
};

/// Throws JobError when the device that a section is built for cannot do its attention.
void check_attention(const SectionContext& context, const AttentionShape& shape);

/// The residual stream, (M_t, C) f32, with the result of the last branch beside it: sum and branch are added where the
/// stream is next read, together with the norm that begins the next branch.
struct Stream {
  Stream(Var whole) : sum(std::move(whole)) {}  // NOLINT(google-explicit-constructor): a stream without a branch
  Stream(Var before, Var last) : sum(std::move(before)), branch(std::move(last)) {}
  Var sum;
  Var branch;  ///< (M_t, C) act; may be undefined
};
/// The stream in a single tensor.
[[nodiscard]] Var whole(Tape& tape, const Stream& stream);
/// Its norm, (M_t, C) act; `stream` is whole afterwards.
[[nodiscard]] Var block_norm(Tape& tape, Stream& stream, const Affine& weights, const NormTerms& terms);

/// Returns the stream behind `body(tape, x)`, of which the tape keeps `x` alone: the backward pass calls `body` again
/// and then takes its steps (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). `body` returns the
/// same bits each time, and is called once more by each rank, in the same order as the others' collectives.
template <class Body>
[[nodiscard]] Stream recomputed(Tape& tape, const Stream& x, Body body) {
  if (!tape.recording()) return body(x);
  const Stream made = tape.unrecorded([&] { return body(x); });
  Stream out(tape.alias(made.sum));
  if (made.branch.defined()) out.branch = tape.alias(made.branch);
  tape.record(out.sum, [&tape, x, out, body] {
    const Stream again = body(x);  // the steps recorded here run next
    tape.add_gradient(again.sum, tape.gradient_block(out.sum));
    if (out.branch.defined() && out.branch.gradient().defined()) {
      tape.add_gradient(again.branch, tape.gradient_block(out.branch));
    }
  });
  return out;
}

/// The stream behind the block. `layout` is of all M rows; its arrays must live until the backward pass.
[[nodiscard]] Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                                       const SequenceLayout& layout);
/// As above, but only the rows `wanted` (N) i32 of the context part go past the attention: (N, C). For a last block
/// with few used rows. An undefined `wanted` takes all; a defined `wanted` is only for ranks without a tensor group.
[[nodiscard]] Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                                       const SequenceLayout& layout, const Block& wanted);

/// The matrices of matrix products in `layers`, which a frozen section may keep in packed form alone.
[[nodiscard]] std::vector<Parameter*> product_matrices(const std::vector<BlockWeights>& layers);

}  // namespace maestro
