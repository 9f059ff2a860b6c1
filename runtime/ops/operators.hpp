// SPDX-License-Identifier: Apache-2.0
// The operators as values: each struct holds the arguments of a call. A table runs them (operator_table.hpp).
//
// Shapes: M = packed rows (tokens) of a micro-batch, K and N = matrix sides, C = width, H = query heads, G = key/value
// heads, D = head size, V = vocabulary, S = sequences in the micro-batch. Rows of all sequences are packed without
// padding; `SequenceLayout` holds their offsets.
// dtypes: "act" is f32 or bf16 (the section's precision), everything else as noted. Arithmetic accumulates in f32.
// Gradients: `accumulate` adds to the output, which is overwritten otherwise. Parameter gradients (f32) always add.
// Memory: tensors and spans lie in memory() of the table, except members marked "host".
// An undefined tensor stands for an argument that is left out; only members marked "or undefined" may be.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/core/gelu_kind.hpp"
#include "runtime/core/glu_gate.hpp"
#include "runtime/core/pending.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/author_operators.hpp"
#include "runtime/ops/delta_operators.hpp"
#include "runtime/ops/distillation_options.hpp"
#include "runtime/ops/expert_operators.hpp"
#include "runtime/ops/flat_operators.hpp"
#include "runtime/ops/latent_operators.hpp"
#include "runtime/ops/query_part.hpp"
#include "runtime/ops/rotary_frequencies.hpp"
#include "runtime/ops/sequence_layout.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

struct AttentionShape {
  std::int64_t heads = 1;      ///< H
  std::int64_t kv_heads = 1;   ///< G, divides H
  std::int64_t head_size = 1;  ///< D
  bool causal = true;
  double scale = 0;         ///< factor of the scores; 0: 1 / sqrt(D)
  std::int64_t window = 0;  ///< a query sees the last `window` keys, including itself; 0: all. Causal only
  double softcap = 0;       ///< c: scores are c tanh(score / c) (Gemma 2, 2024, section 2); 0: none
  [[nodiscard]] double score_scale() const {
    return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_size));
  }
  [[nodiscard]] std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_size; }
  [[nodiscard]] std::int64_t out_columns() const { return heads * head_size; }
};

/// A weight matrix rearranged for the backend's products; made once per optimizer step, opaque to callers.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual bool rows_readable() const = 0;  ///< whether Embedding can read it
};

// ---- memory ----

/// Sets to = 0. Any dtype.
struct Zero {
  Tensor to{};
};

/// Sets to = from, with the same dtype (any) and number of elements; they do not overlap.
struct Copy {
  Tensor from{};
  Tensor to{};
};

/// Sets to = from, which does not change until the work is complete.
struct Upload {
  ConstTensor from{};  ///< host, or memory of another device
  Tensor to{};
};

/// Sets to = from, when the work is complete.
struct Download {
  ConstTensor from{};  ///< may also be in another device's memory
  Tensor to{};         ///< host
};

/// Sets `to` to these bytes, which may change after the call has returned. For small lists, such as indices.
struct Put {
  std::span<const std::byte> values{};  ///< host
  Tensor to{};
};

// ---- matrix products (w is (N, K) row-major, as in Hugging Face `nn.Linear`) ----

/// y = activation(x w^T + bias).
struct Linear {
  Tensor x{};  ///< (M, K) act
  const PackedWeight* w = nullptr;
  Tensor bias{};                         ///< (N) f32, or undefined
  Tensor y{};                            ///< (M, N) act; may be f32 while x is bf16
  std::optional<GeluKind> activation{};  ///< none: the identity
  Tensor pre{};                          ///< (M, N) act, the values before the activation; or undefined
  bool rows_alone = false;               ///< the bits of a row do not depend on the other rows
};

/// Computes dx = dy w, and with `pre` dx = dy w gelu'(pre).
struct LinearBackwardInput {
  Tensor dy{};                      ///< (M, N) act
  const PackedWeight* w = nullptr;  ///< packed for backward_input
  Tensor dx{};                      ///< (M, K) act
  bool accumulate = false;          ///< not with `pre`
  Tensor pre{};                     ///< (M, K) act, or undefined
  GeluKind activation = GeluKind::tanh;
};

/// Computes dw += dy^T x; dbias += dy's column sums.
struct LinearBackwardWeight {
  Tensor dy{};     ///< (M, N) act
  Tensor x{};      ///< (M, K), same dtype as dy
  Tensor dw{};     ///< (N, K) f32
  Tensor dbias{};  ///< (N) f32, or undefined
};

// ---- normalisation ----

/// y = norm(x + added): layer norm (Ba et al. 2016), or RMS norm (Zhang & Sennrich 2019) when `bias` is undefined.
struct Norm {
  Tensor x{};       ///< (M, C) f32 or act; f32 with `added`
  Tensor added{};   ///< (M, C) f32 or act, or undefined
  Tensor sum{};     ///< (M, C) f32 = x + added, may be x; undefined without `added`
  Tensor weight{};  ///< (C) f32
  Tensor bias{};    ///< (C) f32, or undefined: RMS norm
  double epsilon = 0;
  double offset = 0;  ///< added to every weight (Gemma: 1); RMS norm only
  Tensor y{};         ///< (M, C) act
  Tensor mean{};      ///< (M) f32; undefined for RMS norm
  Tensor rstd{};      ///< (M) f32
};

/// Gradients of Norm with respect to its input and parameters.
struct NormBackward {
  Tensor dy{};              ///< (M, C) act
  Tensor x{};               ///< the input, or with an addend the sum
  Tensor weight{};          ///< (C) f32
  Tensor mean{};            ///< (M) f32, or undefined: RMS norm
  Tensor rstd{};            ///< (M) f32
  Tensor dx{};              ///< (M, C) f32 or act; may be dy's memory
  bool accumulate = false;  ///< adds to dx
  Tensor rounded{};         ///< (M, C) act, or undefined: dx again, as the addend's gradient
  Tensor dweight{};         ///< (C) f32, or undefined: frozen
  Tensor dbias{};           ///< (C) f32, or undefined: frozen, or RMS norm
  double offset = 0;        ///< offset, as in Norm
};

/// RMS norms of the query and key columns of qkv, the values copied: y = [norm(q) | norm(k) | v]. A column group is a
/// head, with weights (D) that all heads share (Dehghani et al. 2023; Qwen3), or with `whole` all of q and all of k,
/// with weights (H D) and (G D) (OLMo 2). From the S sums of squares of a row's groups, S = H + G or 2, with n columns
/// in a group: y = x (offset + weight) / sqrt(sum / n + epsilon).
///
/// If q and k are cut over `ranks` tensor ranks and `whole` is set, the caller adds up the ranks' sums between a call
/// with `phase` = sums and a call with `phase` = values; n then counts the columns of all ranks.
enum class HeadNormPhase : std::uint8_t {
  both,   ///< computes sums, then y
  sums,   ///< computes only sums
  values  ///< takes sums as given
};
struct HeadNorm {
  Tensor x{};  ///< (M, (H + 2G) D) act = [q | k | v]
  AttentionShape shape{};
  Tensor query_weight{};  ///< (D) or (H D) f32
  Tensor key_weight{};    ///< (D) or (G D) f32
  double epsilon = 0;
  double offset = 0;  ///< added to every weight
  bool whole = false;
  std::int64_t ranks = 1;
  HeadNormPhase phase = HeadNormPhase::both;
  Tensor sums{};  ///< (M, S) f32, sums of squares: q's groups, then k's
  Tensor y{};     ///< (M, (H + 2G) D) act; undefined in phase sums
};

/// Gradients of HeadNorm. With g = dy (offset + weight), r = 1 / sqrt(sum / n + epsilon) and the dots, the sums of g x
/// over each group: dx = r g - x r^3 dot / n, dweight += dy x r. Phases as above, for `dots`.
struct HeadNormBackward {
  Tensor dy{};  ///< (M, (H + 2G) D) act
  Tensor x{};   ///< the input
  AttentionShape shape{};
  Tensor query_weight{};
  Tensor key_weight{};
  double epsilon = 0;
  double offset = 0;
  bool whole = false;
  std::int64_t ranks = 1;
  HeadNormPhase phase = HeadNormPhase::both;
  Tensor sums{};           ///< (M, S) f32, added up over all ranks
  Tensor dots{};           ///< (M, S) f32
  Tensor dx{};             ///< (M, (H + 2G) D) act, overwritten; may be dy's memory; undefined in phase sums
  Tensor dquery_weight{};  ///< f32, accumulated; or undefined: frozen
  Tensor dkey_weight{};    ///< f32, accumulated; or undefined: frozen
};

// ---- pointwise ----

/// y = gelu(x) (Hendrycks & Gimpel 2016).
struct Gelu {
  Tensor x{};  ///< (M, C) act
  Tensor y{};  ///< (M, C) act
  GeluKind kind = GeluKind::tanh;
};

/// Computes dx = dy * gelu'(x).
struct GeluBackward {
  Tensor dy{};
  Tensor x{};
  Tensor dx{};  ///< may be dy
  GeluKind kind = GeluKind::tanh;
};

/// y = activation(gate) * up, or as GluGate states.
struct Glu {
  Tensor x{};  ///< (M, 2F) act = [gate | up], or alternate columns gate, up
  Tensor y{};  ///< (M, F) act
  GluGate gate = GluGate::silu;
};

struct GluBackward {
  Tensor dy{};  ///< (M, F) act
  Tensor x{};   ///< (M, 2F) act
  Tensor dx{};  ///< (M, 2F) act
  GluGate gate = GluGate::silu;
};

/// x = cap tanh(x / cap), in place. Gradient: dx = dy (1 - (y / cap)^2).
struct Softcap {
  Tensor x{};  ///< (M, C) f32 or act
  double cap = 0;
};

/// out = a + b, elementwise; any mix of f32 and bf16.
struct Add {
  Tensor a{};
  Tensor b{};
  Tensor out{};  ///< may be a or b
};

/// Conversion between f32 and bf16 (copy when equal).
struct Cast {
  Tensor from{};
  Tensor to{};
};

// ---- embedding, rows and positions ----

/// y = scale table[ids] + positions_table[positions]. A negative id takes no row: zeros, plus the position.
struct Embedding {
  Tensor table{};                        ///< (V, C) f32; or undefined
  const PackedWeight* packed = nullptr;  ///< instead of `table`: (V, C) packed for forward, rows_readable()
  Tensor ids{};                          ///< (M) i32
  Tensor positions_table{};              ///< (P, C) f32, or undefined
  std::span<const std::int32_t> positions{};
  Tensor y{};  ///< (M, C) f32
  double scale = 1;
};

/// Computes dtable[ids] += scale dy if the id is not -1, dpositions[positions] += dy, in row order (deterministic).
struct EmbeddingBackward {
  Tensor dy{};   ///< (M, C) f32
  Tensor ids{};  ///< (M) i32
  std::span<const std::int32_t> positions{};
  Tensor dtable{};      ///< (V, C) f32, or undefined
  Tensor dpositions{};  ///< (P, C) f32, or undefined
  double scale = 1;
};

/// Sets out = ids + by if the sum is in [0, limit), else -1.
struct ShiftIds {
  Tensor ids{};  ///< i32
  std::int64_t by = 0;
  std::int64_t limit = 0;
  Tensor out{};  ///< i32, same size; may be ids
};

/// Picks the elements in the columns that `columns` lists, for each row of `from`.
struct PickColumns {
  Tensor from{};     ///< (M, W) i32
  Tensor columns{};  ///< (M, k) i32, below W
  Tensor to{};       ///< (M, k) i32; may be columns
};

/// Sets to = from[index]. Any mix of f32 and bf16.
struct IndexSelect {
  Tensor from{};                          ///< (M, C)
  std::span<const std::int32_t> index{};  ///< (N), below M
  Tensor to{};                            ///< (N, C)
};

/// Computes to[index] += rows, in row order (deterministic). Any mix of f32 and bf16.
struct IndexAdd {
  Tensor rows{};                          ///< (N, C)
  std::span<const std::int32_t> index{};  ///< (N), below M
  Tensor to{};                            ///< (M, C)
};

/// Rotary embedding (Su et al. 2021, Hugging Face half-split layout) of qkv's query and key columns, in place. Rotates
/// the first 2 n columns of each head, n = frequencies->inverse.size(): column i with column n + i, i < n.
struct Rotary {
  Tensor qkv{};  ///< (M, (H + 2G) D) act = [q | k | v]
  AttentionShape shape{};
  std::span<const std::int32_t> positions{};       ///< (M, A)
  const RotaryFrequencies* frequencies = nullptr;  ///< host; 2 n <= D
  int direction = +1;                              ///< +1 rotates, -1 applies the transposed rotation (the gradient)
};

// ---- convolution over packed sequences ----

/// A filter of w rows for each of N channels, and what is done before and after it.
struct ConvolutionShape {
  std::int64_t width = 1;     ///< w
  std::int64_t dilation = 1;  ///< rows from a term to the next
  bool gated = false;         ///< rows have factors before and after the filter; else these are 1
  bool silu = false;          ///< act(s) = s sigmoid(s); else s
  /// Returns the rows before its own that a row reads.
  [[nodiscard]] std::int64_t reach() const { return (width - 1) * dilation; }
  /// Returns N for rows of x with `x_columns` columns.
  [[nodiscard]] std::int64_t channels(std::int64_t x_columns) const { return gated ? x_columns / 3 : x_columns; }
  /// Returns the columns of such a row that later rows read.
  [[nodiscard]] std::int64_t read_columns(std::int64_t x_columns) const {
    return gated ? 2 * x_columns / 3 : x_columns;
  }
};

/// For each channel, with the filter's terms before a sample's first row left out:
///   y_t = out_gate_t act( sum_j weight_j u_{t - (w - 1 - j) dilation} + bias ),  u = in_gate x.
/// y and dx of a sample's rows have the same bits whatever is packed with them (DR-1 in delta_operators.hpp).
struct CausalConv {
  Tensor x{};       ///< (M, N) act; gated: (M, 3N) = [in_gate | out_gate | x]
  Tensor weight{};  ///< (N, w) f32
  Tensor bias{};    ///< (N) f32, or undefined
  ConvolutionShape shape{};
  SequenceLayout layout{};
  std::int64_t first = 0;  ///< the layout's row that x begins with; M may be less than the layout's rows
  /// (B, N) act, gated: (B, 2N) = [in_gate | x]: rows [first - B, first), with B at least the rows before x
  /// that x's rows read; or undefined: B = 0
  Tensor before{};
  Tensor y{};  ///< (M, N) act
};

/// Gradients of CausalConv. With dsum = dy out_gate act'(sum): du_t = sum_j weight_j dsum_{t + (w - 1 - j) dilation}
/// over rows of x in the sample of t; dweight_j += sum_t dsum_t u_{t - (w - 1 - j) dilation}, in row order.
struct CausalConvBackward {
  Tensor dy{};      ///< (M, N) act
  Tensor x{};       ///< the input
  Tensor weight{};  ///< (N, w) f32
  Tensor bias{};    ///< (N) f32, or undefined
  ConvolutionShape shape{};
  SequenceLayout layout{};
  std::int64_t first = 0;
  Tensor before{};   ///< the rows before x, as in CausalConv
  Tensor dx{};       ///< gradient of x, overwritten; or undefined
  Tensor dbefore{};  ///< gradient of before, overwritten; or undefined
  Tensor dweight{};  ///< (N, w) f32, accumulated; or undefined: frozen
  Tensor dbias{};    ///< (N) f32, accumulated; or undefined: frozen, or no bias
};

// ---- attention over packed sequences; never holds T x T ----

/// Scores are shape.score_scale() q k, capped and masked as `shape` states.
struct Attention {
  Tensor qkv{};  ///< (M, (H + 2G) D) act = [q | k | v]
  AttentionShape shape{};
  SequenceLayout layout{};
  Tensor out{};  ///< (M, H D) act
  Tensor lse{};  ///< (M, H) f32 = log-sum-exp of scaled scores, for the backward pass
  /// The rows that are queries. Rows of other parts have only keys and values: their q is not read, and their out and
  /// lse are not written.
  QueryPart queries{};
};

struct AttentionBackward {
  Tensor dout{};
  Tensor qkv{};
  Tensor out{};
  Tensor lse{};
  AttentionShape shape{};
  SequenceLayout layout{};
  Tensor dqkv{};  ///< (M, (H + 2G) D) act, overwritten
  /// The rows that are queries. Rows of other parts have only keys and values: of dout, q, out and lse they are not
  /// read, and their dq is not written. dk and dv are the gradients of the part's queries.
  QueryPart queries{};
};

/// Adds a term, the sink, to each denominator of a softmax (Agarwal et al. 2025, gpt-oss): with lse' = log(exp lse +
/// exp sinks) the weights of all keys are times exp(lse - lse'). With out times these factors and lse',
/// AttentionBackward computes the gradient of attention with sinks.
struct AttentionSinks {
  Tensor sinks{};    ///< (H) f32
  Tensor lse{};      ///< (M, H) f32; becomes lse'
  Tensor factors{};  ///< (M, H) f32
};

/// Computes dsinks -= the sum over rows of exp(sinks - lse') dots, in a fixed order.
struct AttentionSinksBackward {
  Tensor dots{};    ///< (M, H) f32: the dot product of each head's dout and out
  Tensor sinks{};   ///< (H) f32
  Tensor lse{};     ///< (M, H) f32, lse'
  Tensor dsinks{};  ///< (H) f32
};

/// Attention of a sequence's new rows to all its rows so far, for text generation; no gradient. With `sequences`, each
/// new row continues another sequence, and its bits do not depend on the other rows.
struct CachedAttention {
  Tensor qkv{};            ///< (N, (H + 2G) D) act = [q | k | v], for positions first to first + N - 1, already rotated
  AttentionShape shape{};  ///< causal
  Tensor keys{};           ///< (P, G D) act: rows below `first` are read; rows [first, first + N) are written
  Tensor values{};         ///< (P, G D) act, as keys
  std::int64_t first = 0;  ///< first + N <= P
  Tensor out{};            ///< (N, H D) act
  std::span<const std::int32_t>
      ends{};  ///< (N) as SequenceLayout::ends, at most first + N; empty: no row after its own
  /// The N rows' sequences, all different, in memory() of the table; then `first` and `ends` are not given.
  std::span<const CachedSequence> sequences{};
  Tensor sinks{};  ///< (H) f32, as in AttentionSinks; or undefined: none
};

/// CausalConv of a sequence's new rows, for text generation; no gradient. A tail holds the sequence's last `reach`
/// rows, its row t at t % reach. With `sequences`, each new row continues another sequence.
struct CachedConv {
  Tensor x{};       ///< (R, N) act, gated: (R, 3N), for rows first to first + R - 1 of the sequence
  Tensor weight{};  ///< (N, w) f32
  Tensor bias{};    ///< (N) f32, or undefined
  ConvolutionShape shape{};
  Tensor tail{};  ///< (reach, N) act, gated: (reach, 2N) = [in_gate | x], read and written; with sequences, all tails
  std::int64_t first = 0;
  Tensor y{};  ///< (R, N) act
  /// The R rows' sequences, all different, in memory() of the table; `begin` is a tail's first row. Then `first` is 0.
  std::span<const CachedSequence> sequences{};
};

// ---- fused output layer and loss, in row blocks and vocabulary chunks; see distillation_options.hpp ----

/// With `part.group`, the output layer is sharded over the vocabulary and all ranks of the group run the operator at
/// once. head.head, vocabulary and dhead then cover this rank's tokens, and the packs may be null if it has none;
/// hidden and targets are not cut. Sums are over the full vocabulary, the same bits on every rank; dhidden is this
/// rank's partial sum.
struct CrossEntropyLoss {
  using Result = Pending<LossSums>;
  CrossEntropyHead head{};
  VocabularyPart part{};
};

/// The same for distillation. With `part.group`, top k and shared_vocabulary are not cut either. A teacher's head or
/// logits are sharded like the student's, so that below shared_vocabulary a rank has the same tokens of both;
/// teacher_vocabulary is the full vocabulary.
struct DistillationLoss {
  using Result = Pending<LossSums>;
  DistillationHead head{};
  VocabularyPart part{};
};

/// Top k of each row among its first `columns`, descending; ties: lower index first.
struct TopK {
  Tensor logits{};           ///< (M, V) f32 or act
  Tensor values{};           ///< (M, k) f32, 1 <= k <= columns
  Tensor indices{};          ///< (M, k) i32
  std::int64_t columns = 0;  ///< 0: all
};

// ---- the list ----

template <class... Ops>
struct OperatorList {};

using Operators =
    OperatorList<Zero, Copy, Upload, Download, Put, Linear, LinearBackwardInput, LinearBackwardWeight, Norm,
                 NormBackward, HeadNorm, HeadNormBackward, Gelu, GeluBackward, Glu, GluBackward, Softcap, Add, Cast,
                 Embedding, EmbeddingBackward, ShiftIds, PickColumns, IndexSelect, IndexAdd, Rotary, Attention,
                 AttentionBackward, CachedAttention, CausalConv, CausalConvBackward, CachedConv, CrossEntropyLoss,
                 DistillationLoss, TopK, AdamW, StepCounts, SumOfSquares, AddInto, Scale, Multiply, Curved,
                 CurvedBackward, Softmax, SoftmaxBackward, RowDot, Cosine, CosineBackward, CopyColumns, SumLoss, Custom,
                 Route, RouteBackward, SortRoutes, CountRoutes, GroupedLinear, GroupedLinearBackwardInput,
                 GroupedLinearBackwardWeight, CombineRows, DeltaRule, DeltaRuleBackward, CachedDelta, LatentHeads,
                 LatentHeadsBackward, GroupedBias, GroupedBiasBackward, AttentionSinks, AttentionSinksBackward,
                 MemoryGate, MemoryGateBackward>;

namespace operators_internal {
template <class Op>
struct ResultOf {
  using Type = void;
};
template <class Op>
requires requires {
  typename Op::Result;
}
struct ResultOf<Op> {
  using Type = typename Op::Result;
};
}  // namespace operators_internal

/// The type that a table returns for an operator: Op::Result, or void.
template <class Op>
using ResultOf = typename operators_internal::ResultOf<Op>::Type;

}  // namespace maestro
