// SPDX-License-Identifier: Apache-2.0
// Differentiable operators of a section that is spread over ranks, as functions.hpp for one rank. Every rank of a group
// calls the same functions in the same order, each with its own tape on its own thread, and passes gradients to the
// same results; collectives of the backward pass then meet as well. Parts of a rank may have no rows.
//
// PF-1: without a group every function is its counterpart of functions.hpp, or returns x itself, at no further cost.
// PF-2: results and gradients repeat bitwise, and what several ranks hold is the same bits on each (CM-1).
//
// The losses over a vocabulary that is cut over ranks: vocabulary_losses.hpp, included here.
#pragma once

#include <span>

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/functions.hpp"
#include "runtime/ops/vocabulary_losses.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

/// The rows of all ranks of `group` in rank order: (rows, C) of x's dtype, where x of rank r has row_part(rows, size,
/// r) rows (runtime/graph/layout.hpp). x itself without a group. Gradient: each rank gets the sum over ranks of its
/// rows' gradients.
Var all_gather_rows(Tape& tape, const Var& x, Communicator* group, std::int64_t rows);

/// The sum over ranks of x (rows, C), of which this rank keeps row_part(rows, size, rank); dtype as x. x itself without
/// a group. Gradient: gathered from all ranks.
Var reduce_scatter_rows(Tape& tape, const Var& x, Communicator* group);

/// x, whose gradient is summed over the group on every rank: an input that all ranks hold and each uses for its part.
/// f32 or act; summed in f32. Counts what operators recorded from here on give back, and gradients seeded on x. x
/// itself without a group.
Var copy_to_group(Tape& tape, const Var& x, Communicator* group);

/// Attention over rows that are cut over `context` (DeepSpeed Ulysses, Jacobs et al. 2023): qkv (M_c, (H + 2G) D) act
/// -> (M_c, H D) act, where rank c has the rows row_part(M, size, c), options.shape counts all H and G heads of this
/// rank's qkv, and `layout` is of all M rows. Rows are exchanged for H / size and G / size heads per rank and back;
/// both must be divisible by the group's size (asserted). attention() itself without a group, and as there qkv's values
/// may be changed and the layout's arrays must live until the backward pass.
Var context_attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                      Communicator* context);

/// As embedding(), of a table that is cut over the vocabulary: (M, C) f32 that add up over the group to the embedding;
/// positions are added by group rank 0 alone, whose positions_table alone gets a gradient. `positions` (M) are of the
/// rows of ids and must live until the backward pass. ids count tokens of the whole vocabulary. To be followed by
/// reduce_scatter_rows().
Var embedding_part(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table,
                   std::span<const std::int32_t> positions, const VocabularyPart& part);

}  // namespace maestro
