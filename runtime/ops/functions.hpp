// SPDX-License-Identifier: Apache-2.0
// Differentiable operators for section authors to write forward passes with. Each calls the operator table and records
// its backward pass on the tape. Shapes and dtypes are as in operators.hpp; if they do not fit, all throw ShapeError,
// in every build. Calls of the operator table itself are only asserted.
#pragma once

#include <memory>
#include <vector>

#include "runtime/ops/author_functions.hpp"
#include "runtime/ops/parameters.hpp"
#include "runtime/ops/tape.hpp"

namespace maestro {

/// Returns (M, C) f32: scale table[ids] (+ positions_table[positions] if present); an id of -1 takes no row of the
/// table.
Var embedding(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table, const SequenceLayout& layout,
              double scale = 1);
/// Returns (M, N) act = x w^T + bias. A weight with more than two dimensions, such as a convolution's kernel, counts as
/// a matrix: its first dimension by all others.
Var linear(Tape& tape, const Var& x, Parameter& weight, Parameter* bias);
/// Does the same in `compute` rather than in the section's precision; x and the result have this dtype.
Var linear(Tape& tape, const Var& x, Parameter& weight, Parameter* bias, DType compute);
/// Returns the norm (M, C) act. x is usually the f32 residual stream. `offset` is added to every weight.
Var layer_norm(Tape& tape, const Var& x, Parameter& weight, Parameter& bias, double epsilon);
Var rms_norm(Tape& tape, const Var& x, Parameter& weight, double epsilon, double offset = 0);
/// Returns the residual sum, (M, C) f32.
Var add(Tape& tape, const Var& residual, const Var& branch);
/// The sum, as from add(), and its norm, as from layer_norm() or rms_norm(), in a single pass over memory.
struct NormedSum {
  Var sum;     ///< (M, C) f32
  Var normed;  ///< (M, C) act
};
NormedSum add_layer_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, Parameter& bias,
                         double epsilon);
NormedSum add_rms_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, double epsilon,
                       double offset = 0);
/// Returns x with rows[k] added to row index[k]: (M, C) f32 from x (M, C) f32, rows (N, C) act and index (N) i32.
Var index_add(Tape& tape, const Var& x, const Var& rows, const Block& index);
/// Returns the rows `index` (N) i32 of x (M, C) f32 or act: (N, C) of x's dtype.
Var index_select(Tape& tape, const Var& x, const Block& index);
/// Returns x in `dtype`; x itself if it has that dtype already.
Var converted(Tape& tape, const Var& x, DType dtype);
/// Keeps memory that recorded operators refer to, such as a layout's arrays, until the backward pass is complete.
void keep(Tape& tape, const Block& memory);
void keep(Tape& tape, std::shared_ptr<const void> memory);
Var gelu(Tape& tape, const Var& x, GeluKind kind = GeluKind::tanh);
class LowRank;
/// Parameters of a product or norm.
struct Affine {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;   ///< null: none
  LowRank* adapter = nullptr;  ///< adapter of a product; null: none
};
/// Returns linear() as above, with the adapter, if there is one (low_rank.hpp).
Var linear(Tape& tape, const Var& x, const Affine& affine);
/// Returns (M, N) act = linear(gelu(linear(x, in)), out). Fuses the GELU and its gradient into the products if the
/// backend supports that and neither has an adapter.
Var gelu_network(Tape& tape, const Var& x, const Affine& in, const Affine& out, GeluKind kind = GeluKind::tanh);
/// Maps x (M, 2F) = [gate | up] to activation(gate) up, (M, F).
Var glu(Tape& tape, const Var& x, GluGate gate);

struct AttentionOptions {
  AttentionShape shape;
  std::shared_ptr<const RotaryFrequencies> rotary;  ///< null: no rotary embedding
  Parameter* sinks = nullptr;                       ///< (H), as in AttentionSinks; null: none
};
/// Attention of the heads from `first_head` on, and the log-sums of its softmaxes.
struct SunkAttention {
  std::int64_t first_head = 0;
  Tensor out;  ///< (M, H D) act
  Tensor lse;  ///< (M, H) f32
};
/// Adds the sinks of these heads, if there are any, in place, without a record on the tape; and computes their gradient
/// from the result, whose gradient is dout (M, H D) act.
void add_sinks(Tape& tape, const AttentionOptions& options, const SunkAttention& to);
void add_sinks_gradient(Tape& tape, const AttentionOptions& options, const SunkAttention& of, const Tensor& dout);
/// Rotates query and key columns of qkv, with `shape`, in place, without a record on the tape; does nothing without
/// rotary embedding.
void rotate(Tape& tape, const Tensor& qkv, const AttentionOptions& options, const AttentionShape& shape,
            const SequenceLayout& layout, int direction);
/// Computes (M, H D) act from qkv (M, (H + 2G) D). With rotary embedding qkv's values are rotated in place: do not
/// reuse them. The layout's arrays must live until the backward pass.
Var attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout);
/// What a layer keeps of the rows so far, for text generation.
/// LC-1 (same terms): with a cache each row has the terms that it has in a pass over the whole sequence, however the
///       rows are cut into passes; a convolution's results have the same bits.
struct LayerCache {
  Tensor keys = {};                                   ///< (P, G D) act; attention
  Tensor values = {};                                 ///< (P, G D) act; attention
  std::int64_t first = 0;                             ///< rows of the sequence so far
  std::span<const CachedSequence> sequences{};        ///< sequences of the rows, as in CachedAttention or CachedConv
  Tensor tail = {};                                   ///< last rows, as in CachedConv; convolution and delta rule
  Tensor state = {};                                  ///< states, as in CachedDelta; delta rule
  std::span<const CachedSequence> state_sequences{};  ///< sequences of the rows, as in CachedDelta
};
/// Computes attention() for a sequence's rows after the first `cache.first`, or for the next row of each of
/// `cache.sequences`: writes their keys and values to the cache. layout.positions count from a sequence's first row. No
/// gradient.
Var cached_attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                     const LayerCache& cache);

/// Rows that other ranks hold and the first rows of x read: CausalConv::first and before.
struct RowsBefore {
  std::int64_t first = 0;
  Var rows = {};  ///< undefined: none
};
/// Returns the causal convolution (M, N) act of x (M, N) act, or gated of (M, 3N), by `filter` (N, ..., w) f32 with or
/// without a bias (N), for the layout's rows from `before.first` on. The layout's arrays must live until the backward
/// pass.
Var causal_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape,
                const SequenceLayout& layout, const RowsBefore& before = {});
/// Computes causal_conv() for a sequence's rows after the first `cache.first`, or for the next row of each of
/// `cache.sequences`, and keeps in the cache what later rows read. No gradient.
Var cached_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape, const LayerCache& cache);

struct HeadLoss {
  const Tensor* targets = nullptr;  ///< (M) i32, -1 ignored
  double scale = 0;                 ///< 1 / target tokens of the global batch
  double softcap = 0;               ///< soft cap of the logits; 0: none
  Tensor sampled = {};              ///< (M, 1) f32, log-probabilities with which the targets were drawn; for a ratio
};
/// Fuses output layer and softmax cross-entropy; computes gradients in the same pass when the tape records.
Pending<LossSums> cross_entropy_loss(Tape& tape, const Var& hidden, Parameter& head, const HeadLoss& loss);

struct TeacherSignal {
  TeacherOutput boundary = TeacherOutput::hidden;
  Var hidden;                   ///< boundary = hidden
  Parameter* head = nullptr;    ///< the frozen teacher output layer (Vt, Ct)
  Tensor logits;                ///< boundary = logits
  Tensor values, indices;       ///< boundary = top_k or top_k_rest
  std::int64_t vocabulary = 0;  ///< Vt
  double softcap = 0;           ///< soft cap of the logits that `head` gives; 0: none
  Tensor rest;                  ///< boundary = top_k_rest
  Tensor sampled = {};          ///< boundary = sampled
};
struct DistillationTerms {
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0.5;
  double beta = 0.5;
  std::int64_t shared_vocabulary = 0;
  double ratio_cap = 0;  ///< largest ratio of policy_gradient; 0: none. With a ratio HeadLoss::sampled is given
};
Pending<LossSums> distillation_loss(Tape& tape, const Var& hidden, Parameter& head, const TeacherSignal& teacher,
                                    const DistillationTerms& terms, const HeadLoss& loss);

}  // namespace maestro
