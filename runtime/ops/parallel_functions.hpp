// SPDX-License-Identifier: Apache-2.0
// Differentiable operators for a section that is spread over ranks, as functions.hpp for a single rank. Every rank of a
// group calls the same functions in the same order, each with its tape on its thread, and passes gradients to the same
// results; then the collectives of the backward pass match as well. A rank's parts may be without rows.
//
// PF-1 (free without a group): without a group every function is its counterpart of functions.hpp, or returns x itself,
//       at no further cost.
// PF-2 (bitwise results): results and gradients repeat bitwise, and a tensor that several ranks hold has the
//       same bits on each (CM-1).
//
// The losses over a vocabulary that is cut over ranks: vocabulary_losses.hpp, included here. context_attention() is in
// context_attention.cpp.
#pragma once

#include <span>
#include <vector>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/range.hpp"
#include "runtime/ops/functions.hpp"
#include "runtime/ops/vocabulary_losses.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

/// Returns the rows of all ranks of `group` in rank order: (rows, C) in x's dtype. Rank r's x has row_part(rows, size,
/// r) rows (runtime/graph/layout.hpp). Without a group it returns x itself. Gradient: each rank receives the sum of its
/// rows' gradients over ranks.
Var all_gather_rows(Tape& tape, const Var& x, Communicator* group, std::int64_t rows);

/// Returns this rank's rows, row_part(rows, size, rank), of the sum over ranks of x (rows, C); dtype as x. Without a
/// group it returns x itself. Gradient: gathered from all ranks.
Var reduce_scatter_rows(Tape& tape, const Var& x, Communicator* group);

/// Returns x and sums its gradient over the group on every rank: for an input that all ranks hold and each uses for its
/// part. f32 or act; summed in f32. The sum covers gradients from operators recorded from here on and gradients seeded
/// on x. Without a group it only returns x.
Var copy_to_group(Tape& tape, const Var& x, Communicator* group);

/// RMS norms of query and key columns. On a tensor rank the weights of `whole` norms cover its columns only.
struct HeadNorms {
  Parameter* query = nullptr;  ///< (D); with `whole` (H D)
  Parameter* key = nullptr;    ///< (D); with `whole` (G D)
  bool whole = false;          ///< one norm over all heads, not one per head
  double epsilon = 0;
  double offset = 0;  ///< added to every weight
};
/// Returns qkv (M, (H + 2G) D) act with q and k normed. `shape` is the shape of this rank's heads; with `whole`, the
/// ranks of the tensor group add up their sums.
Var head_norm(Tape& tape, const Var& qkv, const HeadNorms& norms, const AttentionShape& shape, Communicator* group);

/// Computes attention over rows that are cut over `context`: qkv (M_c, (H + 2G) D) act -> (M_c, H D) act. Rank c has
/// the rows row_part(M, size, c), options.shape counts all H and G heads of this rank's qkv, and `layout` covers all M
/// rows. Without a group it is attention(). As there, qkv's values may change and the layout's arrays must live until
/// the backward pass.
///
/// Ranks exchange rows for heads and back (DeepSpeed Ulysses, Jacobs et al. 2023). Where there are more ranks than key
/// heads, several have the same key head, and the gradients of its keys and values are added up when they go back. If
/// heads cannot be divided over all ranks, neighbouring ranks form as many groups as can have equal heads, and each
/// rank of a group computes its QueryPart of the queries against all keys (as in Llama 3's context parallelism, Dubey
/// et al. 2024, section 3.3.2). Then the tape keeps only M_c rows, and the backward pass exchanges them again.
Var context_attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                      Communicator* context);

/// Rows of a micro-batch that a rank sends to another, whose first rows read them.
struct HaloPart {
  std::int64_t from = 0;
  std::int64_t to = 0;
  RowRange rows;  ///< among all rows
};
/// Returns the parts of all ranks, by receiver and then by row: of its samples, the `reach` rows before the first row
/// of row_part(M, ranks, rank), M being the last of `offsets`. Ranks may have fewer rows than that.
[[nodiscard]] std::vector<HaloPart> halo_parts(std::span<const std::int32_t> offsets, std::int64_t ranks,
                                               std::int64_t reach);

/// Computes causal_conv() over rows that are cut over `context`, as in context_attention(): x (M_c, N) or gated (M_c,
/// 3N) act -> (M_c, N) act, `layout` being of all M rows. Ranks exchange the rows of halo_parts() once, and in the
/// backward pass their gradients, which the rank that holds a row adds to its own in the order of ranks. Values are as
/// on a single rank, bit for bit.
Var context_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape,
                 const SequenceLayout& layout, Communicator* context);

/// Computes embedding() for a table that is cut over the vocabulary: (M, C) f32 that add up over the group to the
/// embedding. Only group rank 0 adds positions, and only its positions_table gets a gradient. `positions` (M) belong to
/// the rows of ids and must live until the backward pass. ids count tokens of the full vocabulary. Call
/// reduce_scatter_rows() on the result.
Var embedding_part(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table,
                   std::span<const std::int32_t> positions, const VocabularyPart& part, double scale = 1);

}  // namespace maestro
