// SPDX-License-Identifier: Apache-2.0
// The transformer block of every stack in sections/: norm before each branch, attention over packed sequences, a
// feed-forward network, both added to an f32 residual stream (pre-norm, Xiong et al. 2020).
//
// The weights decide the kind of a block: a norm with a bias is a layer norm, without it an RMS norm; a feed-forward
// network of gate and up projection (ffn_in of twice ffn_out's columns) is gated, any other a GELU; a layer with a
// router has a mixture of experts (experts.hpp). Norms that are left
// out do nothing: norms before the branches, after them (OLMo 2; Gemma 2 has both), and of query and key. So do factors
// of the branches' columns.
//
// Over ranks (the micro-batch has M rows, a context part M_c, a rank M_t): norms and residual sums use M_t rows.
// Before each branch the tensor group's rows are gathered, (M_c, C); its first product is cut by rows of the weight,
// its second by columns, and the sum over the group is scattered by rows, (M_t, C). Attention has all M rows and a part
// of the heads, a convolution M_c rows and a part of the channels. Without groups all three are M and nothing is
// exchanged.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/ops/delta_functions.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "sections/decoder/latent_attention.hpp"
#include "sections/experts.hpp"
#include "sections/parameter_builder.hpp"

namespace maestro {

/// Weights of a tensor rank: its rows of qkv and ffn_in, with their biases, its columns of attention_out and ffn_out;
/// norms and the other biases are not cut (TensorCut). A layer with a filter mixes its rows by a convolution: its qkv
/// is the product that makes [in_gate | out_gate | x], its attention_out the product after the convolution. With a
/// delta rule after the filter, qkv makes [q | k | v | z | b | a] (gated_delta.hpp).
struct BlockWeights {
  Affine attention_norm, qkv, attention_out, ffn_norm, ffn_in, ffn_out;
  LatentWeights latent;                  ///< products for latent attention, in place of qkv
  Affine filter;                         ///< the rank's channels of a convolution, (C, 1, w) and (C)
  DeltaWeights delta;                    ///< the rank's heads of a gated delta rule after the filter
  Parameter* delta_norm = nullptr;       ///< (dv): norm of each value head's result
  Affine behind_attention, behind_ffn;   ///< norms of the branches' results
  Parameter* attention_scale = nullptr;  ///< (C): factors of a branch's columns (LayerScale, Touvron et al. 2021)
  Parameter* ffn_scale = nullptr;
  Parameter* query_norm = nullptr;  ///< norms of query and key, as in HeadNorms
  Parameter* key_norm = nullptr;
  Parameter* sinks = nullptr;  ///< the rank's heads' sinks, (H); null: none
  ExpertWeights experts;       ///< a mixture in place of ffn_in and ffn_out, if it has a router
};

/// Constants of a model's norms.
struct NormTerms {
  double epsilon = 1e-5;
  double offset = 0;  ///< added to every weight; RMS norms only
};

struct BlockOptions {
  AttentionOptions attention;    ///< attention of the tensor rank's heads, which all its context ranks share
  ConvolutionShape convolution;  ///< form of a filter, if the layer has one
  DeltaShape delta;              ///< heads of the tensor rank's delta rule, if the layer has one
  LatentShape latent;            ///< heads of the tensor rank's latent attention, if the layer has it
  bool output_gate = false;      ///< attention's first product also makes gates: [query | gate] by head, then keys
  NormTerms norm;
  bool whole_head_norms = false;         ///< query_norm and key_norm are over all heads rather than over each
  GluGate gate = GluGate::silu;          ///< activation in gated networks
  GeluKind activation = GeluKind::tanh;  ///< activation of other networks
  std::int64_t experts_per_token = 1;
  RouteOptions router;
  ExpertBalance* balance = nullptr;  ///< losses of the experts in this pass; null: none
  PassRoutes routes = {};            ///< the pass's hook into the choice of experts
  Communicator* tensor_group = nullptr;
  Communicator* context_group = nullptr;
  Communicator* expert_group = nullptr;
  const LayerCache* cache = nullptr;  ///< layer's cache, for rows that continue a sequence; only without groups
};

/// Throws JobError if the device that a section is built for cannot do its attention.
void check_attention(const SectionContext& context, const AttentionShape& shape);

/// Port of the stream between two pipeline stages.
inline constexpr const char* stream_name = "stream";

/// The residual stream, (M_t, C) f32, together with the last branch's result: sum and branch are added when the stream
/// is next read, together with the norm that begins the next branch.
struct Stream {
  Stream(Var whole) : sum(std::move(whole)) {}  // NOLINT(google-explicit-constructor): a stream without a branch
  Stream(Var before, Var last) : sum(std::move(before)), branch(std::move(last)) {}
  Var sum;
  Var branch;  ///< (M_t, C) act; may be undefined
};
/// Returns the stream in a single tensor.
[[nodiscard]] Var whole(Tape& tape, const Stream& stream);
/// Returns the stream's norm, (M_t, C) act; `stream` is a single tensor afterwards.
[[nodiscard]] Var block_norm(Tape& tape, Stream& stream, const Affine& weights, const NormTerms& terms);

/// Returns the stream after `body(tape, x)`, and keeps only `x` on the tape: the backward pass calls `body` again and
/// then takes its steps (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). `body` returns the same
/// bits each time, and each rank calls it once more, in the same order as the others' collectives.
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

/// Runs all `layers` layers: `run(first, end, x)` returns the stream after the layers [first, end). If `group` is above
/// 0, the backward pass computes `group` layers at a time again, so that `run` must repeat its bits (recomputed()).
template <class Run>
[[nodiscard]] Stream through_layers(Tape& tape, Stream x, std::size_t layers, std::int64_t group, Run run) {
  if (group == 0 || !tape.recording()) return run(0, layers, std::move(x));
  for (std::size_t first = 0; first < layers;) {
    const std::size_t end = std::min(first + static_cast<std::size_t>(group), layers);
    x = recomputed(tape, x, [run, first, end](const Stream& before) { return run(first, end, before); });
    first = end;
  }
  return x;
}

/// Returns the stream after the block. `layout` is of all M rows; its arrays must live until the backward pass.
[[nodiscard]] Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                                       const SequenceLayout& layout);
/// Does the same, but only the rows `wanted` (N) i32 of the context part pass the attention: (N, C). For a last block
/// with few used rows. An undefined `wanted` takes all; a defined `wanted` is only for ranks without a tensor group.
[[nodiscard]] Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                                       const SequenceLayout& layout, const Block& wanted);

/// Returns the matrices of matrix products in `layers`, which a frozen section may keep only in packed form.
[[nodiscard]] std::vector<Parameter*> product_matrices(const std::vector<BlockWeights>& layers);

}  // namespace maestro
