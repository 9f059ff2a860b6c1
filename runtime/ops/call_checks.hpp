// SPDX-License-Identifier: Apache-2.0
// Checks of the shapes and dtypes that the functions of a tape get, in every build, once a call. They read no values.
// All throw ShapeError: operator, arguments with shapes and dtypes, the rule.
#pragma once

#include <span>
#include <vector>

#include "runtime/core/shape_error.hpp"
#include "runtime/ops/functions.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

struct ExpertMatrices;
struct Routes;

/// Checks a product of x (M, K) in `compute` with a weight (N, K) and a bias (N); without a bias: null.
void check_product(const char* op, DType compute, const Tensor& x, const Parameter& weight, const Parameter* bias);
/// Checks x (M, C) with routes for M tokens; `experts` has E groups (2F, C) and (C, F), or on each of `ranks` ranks
/// that share them E / ranks.
void check_experts(DType compute, const Tensor& x, const Routes& routes, const ExpertMatrices& experts,
                   std::int64_t ranks);
/// Checks the choice of `chosen` of E experts by logits (M, E) f32, with a bias (E) f32 or none.
void check_route(const Tensor& logits, std::int64_t chosen, const RouteOptions& options, const Tensor& bias);
/// Checks the choice of `chosen` different experts of E for each row of logits (M, E) f32: `experts` (M chosen). Reads
/// them, in host memory.
void check_route_to(const Tensor& logits, std::int64_t chosen, std::span<const std::int32_t> experts);
/// Checks a norm of x (M, C) f32 or act with a weight (C) and a bias (C); without a bias: null.
void check_norm(const char* op, DType compute, const Tensor& x, const Parameter& weight, const Parameter* bias);
/// Checks a sum of tensors (M, C), f32 or act.
void check_sum(const char* op, const Tensor& a, const Tensor& b);
/// Checks rows of x (M, C) at `index` (N) i32; with `rows` (N, C).
void check_rows(const char* op, const Tensor& x, const Tensor& index, const Tensor& rows = {});
/// Checks an operator on one tensor (M, C) of f32 or bf16.
void check_pointwise(const char* op, const Tensor& x);
/// Checks a gate over x (M, 2F).
void check_gate(const Tensor& x);
/// Checks ids (M) i32 of rows of `table` (V, C), with positions (P, C) at `positions` (M); without them: null.
void check_embedding(const Tensor& ids, const Parameter& table, const Parameter* positions_table,
                     std::size_t positions);
/// Checks qkv (M, (H + 2G) D) of the layout's rows, or of `rows` on a context rank.
void check_attention(const char* op, const Tensor& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                     std::int64_t rows);
/// Checks qkv (M, (H + 2G) D) with weights (D) of its heads, or with `whole` (H D) and (G D).
void check_head_norm(const Tensor& qkv, const Parameter& query, const Parameter& key, const AttentionShape& shape,
                     bool whole);
/// Checks keys and values (P, G D) for the rows of qkv after the first `cache.first`.
void check_cache(const Tensor& qkv, const AttentionOptions& options, const LayerCache& cache);
/// Checks x (M, N), gated (M, 3N), with filters (N, ..., w) and a bias (N); without a bias: null.
void check_convolution(const char* op, const Tensor& x, const Parameter& weight, const Parameter* bias,
                       const ConvolutionShape& shape);
/// Checks the tail for rows of x.
void check_tail(const Tensor& x, const ConvolutionShape& shape, const LayerCache& cache);
/// Checks qkv (M, 2 Hk dk + Hv dv), gates (M, 2 Hv) and weights (Hv); Hk divides Hv.
void check_delta(const char* op, const Tensor& qkv, const Tensor& gates, const Parameter& a_log,
                 const Parameter& dt_bias, const DeltaShape& shape);
/// Checks the states for rows of qkv.
void check_delta_state(const Tensor& qkv, const DeltaShape& shape, const LayerCache& cache);
/// Checks queries (M, H D), keys (M, H (D - P + V)) and rope (M, P); P is even, P and V are at most D.
void check_latent(const Tensor& queries, const Tensor& keys, const Tensor& rope, const LatentShape& shape);
/// Checks hidden (M, C) in `compute` with a head (V, C), and targets (M) i32.
void check_loss(const char* op, DType compute, const Tensor& hidden, const Parameter& head, const HeadLoss& loss);
/// Checks the teacher's side for hidden (M, C); `part`: the rank's tokens of the student's vocabulary.
void check_teacher(const Tensor& hidden, const Parameter& head, const TeacherSignal& teacher,
                   const DistillationTerms& terms, const HeadLoss& loss, const VocabularyPart& part);
/// Checks values (M, k) f32 and indices (M, k) i32 of logits (M, V).
void check_top_k(const Tensor& logits, const Tensor& values, const Tensor& indices);
/// Check the operators for section authors, on f32 or bf16: a value; two values (M, C); a value (M, C) with another of
/// the same shape or a factor for each row; a value with the layout's rows; parts with equal rows and dtype; columns
/// [first, first + count) of x; losses (M, 1) f32.
void check_values(const char* op, const Tensor& x);
void check_pair(const char* op, const Tensor& a, const Tensor& b);
void check_factors(const Tensor& a, const Tensor& b);
void check_samples(const char* op, const Tensor& x, const SequenceLayout& layout);
void check_concat(const std::vector<Tensor>& parts);
void check_columns(const Tensor& x, std::int64_t first, std::int64_t count);
void check_sum_loss(const Tensor& values);
/// Checks a gradient for a value of as many elements.
void check_gradient(const Tensor& value, const Tensor& gradient);
/// Checks the number of rows in this rank's part.
void check_part(const char* op, const Tensor& part, std::int64_t expected_rows);

}  // namespace maestro
