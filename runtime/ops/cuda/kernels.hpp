// SPDX-License-Identifier: Apache-2.0
// Operators of runtime/ops/operator_table.hpp on a device, except matrix products and attention.
//
// Every function enqueues its kernels on the stream of `at` and returns; results are complete when the stream reaches
// that point. Shapes, dtypes and meaning are as in the table, with all tensors, positions and indices in device memory;
// any sizes, M = 0 included. Memory that is aligned to 16 bytes, with a multiple of 8 elements per row, is read and
// written 16 bytes at a time.
// Determinism: the same call on the same device gives the same bits; no sum depends on the order of threads. Errors:
// DeviceError when a launch is refused. Shapes and dtypes are the caller's contract (asserted). Threads: any, but a
// single thread at a time per stream and workspace; the current device is the stream's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cuda/workspace.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

struct Launch {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;         ///< multiprocessors that the stream may use; grids are sized to them
  Workspace* workspace = nullptr;  ///< the stream's workspace
};

// ---- pointwise ----
void zero(const Launch& at, const Tensor& tensor);
void cast(const Launch& at, const Tensor& from, const Tensor& to);
void add(const Launch& at, const Tensor& a, const Tensor& b, const Tensor& out);
void gelu(const Launch& at, const Gelu& op);
/// Computes dx, which may be dy or x.
void gelu_backward(const Launch& at, const GeluBackward& op);
void glu(const Launch& at, const Glu& op);
/// Computes dx, which may be x.
void glu_backward(const Launch& at, const GluBackward& op);
void softcap(const Launch& at, const Softcap& op);
void add_into(const Launch& at, float* into, const float* values, std::int64_t count);

// ---- normalisation ----
void norm(const Launch& at, const Norm& op);
void norm_backward(const Launch& at, const NormBackward& op);
void head_norm(const Launch& at, const HeadNorm& op);
void head_norm_backward(const Launch& at, const HeadNormBackward& op);

// ---- embedding and positions; spans are device memory ----
void embedding(const Launch& at, const Embedding& op);
void embedding_backward(const Launch& at, const EmbeddingBackward& op);
void shift_ids(const Launch& at, const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out);
void pick_columns(const Launch& at, const Tensor& from, const Tensor& columns, const Tensor& to);
void index_select(const Launch& at, const Tensor& from, std::span<const std::int32_t> index, const Tensor& to);
/// Adds up the rows of an index in f32 before it adds them to `to`.
void index_add(const Launch& at, const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to);
void rotary(const Launch& at, const Rotary& op);

// ---- convolution; offsets of layouts are device memory ----
void causal_conv(const Launch& at, const CausalConv& op);
void causal_conv_backward(const Launch& at, const CausalConvBackward& op);
void cached_conv(const Launch& at, const CachedConv& op);

// ---- for section authors (author_operators.hpp) ----
void scale(const Launch& at, const Scale& op);
void multiply(const Launch& at, const Multiply& op);
void curved(const Launch& at, const Curved& op);
void curved_backward(const Launch& at, const CurvedBackward& op);
void memory_gate(const Launch& at, const MemoryGate& op);
void memory_gate_backward(const Launch& at, const MemoryGateBackward& op);
void softmax(const Launch& at, const Softmax& op);
void softmax_backward(const Launch& at, const SoftmaxBackward& op);
void row_dot(const Launch& at, const RowDot& op);
void cosine(const Launch& at, const Cosine& op);
void cosine_backward(const Launch& at, const CosineBackward& op);
void copy_columns(const Launch& at, const CopyColumns& op);

// ---- mixtures of experts (expert_operators.hpp); the rows of a group do not depend on the other rows ----
void route(const Launch& at, const Route& op);
void route_backward(const Launch& at, const RouteBackward& op);
void count_routes(const Launch& at, const CountRoutes& op);
void step_counts(const Launch& at, const StepCounts& op);
void sort_routes(const Launch& at, const SortRoutes& op);
void grouped_linear(const Launch& at, const GroupedLinear& op);
void grouped_linear_backward_input(const Launch& at, const GroupedLinearBackwardInput& op);
void grouped_linear_backward_weight(const Launch& at, const GroupedLinearBackwardWeight& op);
void combine_rows(const Launch& at, const CombineRows& op);
void grouped_bias(const Launch& at, const GroupedBias& op);
void grouped_bias_backward(const Launch& at, const GroupedBiasBackward& op);

// ---- gated delta rule (delta_operators.hpp); offsets of layouts are device memory ----
void delta_rule(const Launch& at, const DeltaRule& op);
void delta_rule_backward(const Launch& at, const DeltaRuleBackward& op);
void cached_delta(const Launch& at, const CachedDelta& op);

// ---- heads of latent attention (latent_operators.hpp) ----
void latent_heads(const Launch& at, const LatentHeads& op);
void latent_heads_backward(const Launch& at, const LatentHeadsBackward& op);

// ---- attention sinks ----
void attention_sinks(const Launch& at, const AttentionSinks& op);
void attention_sinks_backward(const Launch& at, const AttentionSinksBackward& op);

// ---- sums over rows ----
/// Computes into (N) f32 += the column sums of values (M, N) f32 or bf16, in a fixed order.
void add_column_sums(const Launch& at, const Tensor& values, const Tensor& into);

// ---- output-layer losses for a block of rows, and top k ----
/// Results of each row, (R) f32; 0 if the target is -1. All but ce may be undefined.
struct RowLosses {
  Tensor ce;
  Tensor kl;
  Tensor teacher_ce;   ///< 0 unless the teacher has logits
  Tensor policy = {};  ///< for policy_gradient: -w A log q(target)
  Tensor ratio = {};   ///< for policy_gradient: q(target) / mu(target), not capped; 1 without mu
};
struct LossRows {
  Tensor logits;                ///< (R, N) f32 or act; overwritten by dlogits if `gradient`
  std::int64_t vocabulary = 0;  ///< columns that both the divergence and the cross-entropy use
  Tensor targets;               ///< (R) i32 below vocabulary; -1: gradient 0
  double scale = 0;             ///< factor of the gradient
  bool gradient = false;
  RowLosses losses;
  std::int64_t rest = 0;  ///< columns after `vocabulary`, only for the cross-entropy; the others up to N get gradient 0
  double softcap = 0;     ///< soft cap already applied; gradients are for the logits before it
};
/// Computes dlogits = scale (softmax - onehot) and ce = -log softmax[target].
void cross_entropy_rows(const Launch& at, const LossRows& rows);

/// Either logits, or values and indices, or sampled.
struct TeacherRows {
  Tensor logits;        ///< (R, at least vocabulary) f32 or bf16
  Tensor values;        ///< (R, k) f32, k <= 256
  Tensor indices;       ///< (R, k) i32, each token once; tokens outside the vocabulary are left out
  Tensor sampled = {};  ///< (R) f32, log p(target), for policy_gradient
  Tensor drawn = {};    ///< (R) f32, log mu(target), for policy_gradient with a ratio; next to any of these
};
/// Weights, as in DistillationHead.
struct DistillationWeights {
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0;  ///< 0 without a teacher
  double beta = 0.5;
  double ratio_cap = 0;  ///< policy_gradient; 0: no ratio
};
/// Computes dlogits = the gradient of scale times the total of distillation_options.hpp, and kl = the divergence.
void distillation_rows(const Launch& at, const LossRows& rows, const TeacherRows& teacher,
                       const DistillationWeights& weights);
/// Sets *sums (device, or pinned host memory that the device sees) to the sums over rows with a target, in f64 and a
/// fixed order; with `accumulate` adds to its value. Undefined targets: over all rows of losses.ce.
void sum_rows(const Launch& at, const Tensor& targets, const RowLosses& losses, const DistillationWeights& weights,
              LossSums* sums, bool accumulate);
/// Finds the k largest of the first `columns` (0: all) of logits f32 or bf16; k <= 256. NaN comes first, as on the CPU.
void top_k(const Launch& at, const Tensor& logits, const Tensor& values, const Tensor& indices,
           std::int64_t columns = 0);

// ---- flat vectors ----
/// Vectors of an AdamW step, which also sets the gradient to zero. Moments are f32, or both bf16. `copy`, if not null,
/// receives the new value in bf16.
struct AdamWVectors {
  float* value = nullptr;
  float* gradient = nullptr;
  Tensor mean;
  Tensor variance;
  bfloat16* copy = nullptr;
  std::int64_t count = 0;
};
void adamw(const Launch& at, const AdamWVectors& vectors, const AdamWStep& step);
/// Sets *sum (device, or pinned host memory that the device sees) to the sum of squares in f64 and a fixed order; with
/// `accumulate` adds to its value.
void sum_of_squares(const Launch& at, const float* values, std::int64_t count, double* sum, bool accumulate);

}  // namespace maestro::cuda
