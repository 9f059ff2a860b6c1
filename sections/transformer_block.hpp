// The transformer block of every stack in sections/: norm before each branch, attention over packed sequences, a
// feed-forward network, both added to an f32 residual stream (pre-norm, Xiong et al. 2020).
//
// What a block is, its weights tell: with a bias a norm is a layer norm, without one an RMS norm; a feed-forward
// network of gate and up projection (ffn_in of twice ffn_out's columns) is SwiGLU, any other tanh GELU.
#pragma once

#include <vector>

#include "runtime/ops/functions.hpp"
#include "sections/parameter_builder.hpp"

namespace maestro {

struct BlockWeights {
  Affine attention_norm, qkv, attention_out, ffn_norm, ffn_in, ffn_out;
};

struct BlockOptions {
  AttentionOptions attention;
  double norm_epsilon = 1e-5;
};

/// (M, C) act.
[[nodiscard]] Var block_norm(Tape& tape, const Var& x, const Affine& weights, double epsilon);

/// The residual stream behind the block, (M, C) f32. The layout's arrays must live until the backward pass.
[[nodiscard]] Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                                    const SequenceLayout& layout);
/// As above, but only the rows `wanted` (N) i32 go past the attention: (N, C). For a last block of whose rows few are
/// used. An undefined `wanted` takes all.
[[nodiscard]] Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                                    const SequenceLayout& layout, const Block& wanted);

/// The matrices of matrix products in `layers`, which a frozen section may keep in packed form alone.
[[nodiscard]] std::vector<Parameter*> product_matrices(const std::vector<BlockWeights>& layers);

}  // namespace maestro
