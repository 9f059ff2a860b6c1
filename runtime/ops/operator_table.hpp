// SPDX-License-Identifier: Apache-2.0
// The seam between compute backends: every operator a section needs, on plain tensors, without autograd.
//
// Shapes: M = packed rows (tokens) of a micro-batch, K and N = matrix sides, C = width, H = query heads, G = key/value
// heads, D = head size, V = vocabulary, S = sequences in the micro-batch. Rows of all sequences are packed without
// padding; `SequenceLayout` tells where each begins.
// dtypes: "act" is f32 or bf16 (the section's precision), everything else as noted. Arithmetic accumulates in f32.
// Gradients: `accumulate` adds to what the output holds, otherwise the output is overwritten. Parameter gradients
// (f32) always accumulate.
// Memory: tensors and spans lie in memory(), except where "host" is said. A call may return before its work is done:
// work is done in the order of the calls, and Device::finish() tells when. What a call refers to stays until then.
// Thread-safety: a table of the CPU is stateless apart from per-thread scratch; calls from several device threads
// may run at once. A table of another device belongs to one thread.
// Errors: shapes and dtypes are the caller's contract (asserted); no operator allocates results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/core/memory_space.hpp"
#include "runtime/core/pending.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/distillation_options.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

/// Where each packed sequence begins: `offsets` has S + 1 entries, the last is M; `positions` (M) counts from 0 in
/// each.
struct SequenceLayout {
  std::span<const std::int32_t> offsets;    ///< host
  std::span<const std::int32_t> positions;  ///< memory() of the table
  std::span<const std::int32_t> device_offsets =
      {};  ///< offsets in memory() of the table; empty where that is the host
  [[nodiscard]] std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  [[nodiscard]] std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

struct AttentionShape {
  std::int64_t heads = 1;      ///< H
  std::int64_t kv_heads = 1;   ///< G, divides H
  std::int64_t head_size = 1;  ///< D
  bool causal = true;
  [[nodiscard]] std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_size; }
  [[nodiscard]] std::int64_t out_columns() const { return heads * head_size; }
};

enum class Activation : std::uint8_t { none, gelu };

/// A weight matrix rearranged for the backend's products; made once per optimizer step, opaque to callers.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};
enum class PackFor : std::uint8_t {
  forward,        ///< y = x w^T
  backward_input  ///< dx = dy w
};

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;        ///< from 1, for the bias corrections
  double gradient_scale = 1.0;  ///< clipping factor applied to the gradient first
};

class OperatorTable {
 public:
  virtual ~OperatorTable() = default;

  // ---- memory ----
  /// Where this table's tensors lie; outlives the table.
  [[nodiscard]] virtual MemorySpace& memory() const { return host_memory(); }
  /// to = 0. Any dtype.
  virtual void zero(const Tensor& to) const;
  /// to = from, of the same dtype (any) and as many elements; they do not overlap.
  virtual void copy(const Tensor& from, const Tensor& to) const;
  /// to = host_from, which stays as it is until the work is complete. It may also lie in another device's memory.
  virtual void upload(const Tensor& host_from, const Tensor& to) const;
  /// host_to = from, when the work is complete. `from` may also lie in another device's memory.
  virtual void download(const Tensor& from, const Tensor& host_to) const;
  /// to = these bytes of the host, which may change when this has returned. For small lists, such as indices.
  virtual void put(std::span<const std::byte> values, const Tensor& to) const;

  // ---- work that comes again ----
  /// Runs `calls`, a pass that may come again with the same operators, tensors and scalars, once. Its calls of this
  /// table may be put off until all have been made, or be done by replaying what was recorded of equal ones; so nothing
  /// else of the device happens in it that depends on their order: no work of groups, no memory of the table's space
  /// given back (that of arenas is), no results read. What it throws is thrown; its calls may then be left out.
  /// `place` tells passes of different kinds apart.
  virtual void repeat(std::uint64_t /*place*/, const std::function<void()>& calls) const { calls(); }

  // ---- matrix products (w is (N, K) row-major, as in Hugging Face `nn.Linear`) ----
  /// Repacks f32 `w` (N, K) for products in `compute` (f32 or bf16). `reuse` may be an older pack of the same weight.
  virtual std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                             std::unique_ptr<PackedWeight> reuse) const = 0;
  /// y (M, N) act = activation(x (M, K) act * w^T + bias (N) f32 or undefined). y may be f32 while x is bf16.
  virtual void linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
                      Activation activation = Activation::none) const = 0;
  /// dx (M, K) act = dy (M, N) act * w; `w` packed for backward_input.
  virtual void linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx,
                                     bool accumulate) const = 0;
  /// dw (N, K) f32 += dy^T x; dbias (N) f32 += column sums of dy when defined. x and dy: act, same dtype.
  virtual void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                      const Tensor& dbias) const = 0;

  /// True when products take a weight as it lies, (N, K) in the dtype of the product, for every use: then
  /// Parameters keep one bf16 copy of all values, and pack() is called once for it and costs nothing.
  [[nodiscard]] virtual bool takes_plain_weights() const { return false; }
  /// pre = x w^T + bias and y = gelu(pre), (M, N) act both.
  virtual void linear_gelu(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& pre,
                           const Tensor& y) const;
  /// dpre (M, K) act = (dy (M, N) act * w) gelu'(pre); `w` packed for backward_input.
  virtual void linear_backward_input_gelu(const Tensor& dy, const PackedWeight& w, const Tensor& pre,
                                          const Tensor& dpre) const;

  // ---- normalisation: x (M, C) f32 or act, y (M, C) act, weight/bias (C) f32, mean/rstd (M) f32 ----
  virtual void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
                          const Tensor& mean, const Tensor& rstd) const = 0;
  virtual void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                   const Tensor& rstd, const Tensor& dx, bool accumulate, const Tensor& dweight,
                                   const Tensor& dbias) const = 0;
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                        const Tensor& rstd) const = 0;
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                 const Tensor& dx, bool accumulate, const Tensor& dweight) const = 0;

  /// sum (M, C) f32 = a (M, C) f32 + b (M, C) act, and its norm.
  virtual void add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                              double epsilon, const Tensor& sum, const Tensor& y, const Tensor& mean,
                              const Tensor& rstd) const;
  virtual void add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double epsilon, const Tensor& sum,
                            const Tensor& y, const Tensor& rstd) const;

  // ---- pointwise ----
  /// Tanh-approximated GELU (Hendrycks & Gimpel 2016; "gelu_new" in Hugging Face). x, y (M, C) act.
  virtual void gelu(const Tensor& x, const Tensor& y) const = 0;
  /// dx = dy * gelu'(x); dx may be dy.
  virtual void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  /// SwiGLU (Shazeer 2020): x (M, 2F) act = [gate | up], y (M, F) = silu(gate) * up.
  virtual void swiglu(const Tensor& x, const Tensor& y) const = 0;
  virtual void swiglu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  /// out = a + b, elementwise; any mix of f32 and bf16; out may be a or b.
  virtual void add(const Tensor& a, const Tensor& b, const Tensor& out) const = 0;
  /// Conversion between f32 and bf16 (copy when equal).
  virtual void cast(const Tensor& from, const Tensor& to) const = 0;

  // ---- embedding and positions ----
  /// y (M, C) f32 = table[ids] + positions_table[positions] (the latter when defined). ids, positions (M) i32. An id of
  /// -1 takes no row of the table: zeros, plus the position.
  virtual void embedding(const Tensor& table, const Tensor& ids, const Tensor& positions_table,
                         std::span<const std::int32_t> positions, const Tensor& y) const = 0;
  /// dtable[ids] += dy (where the id is not -1), dpositions[positions] += dy, in row order (deterministic); a gradient
  /// that is undefined is left out. dy (M, C) f32.
  virtual void embedding_backward(const Tensor& dy, const Tensor& ids, std::span<const std::int32_t> positions,
                                  const Tensor& dtable, const Tensor& dpositions) const = 0;
  /// out = ids + by where that lies in [0, limit), -1 elsewhere. ids, out of as many elements, i32; out may be ids.
  virtual void shift_ids(const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) const;
  /// to (M, k) i32 = of each row of from (M, W) i32 the columns that `columns` (M, k) i32 names, all below W. to may be
  /// columns.
  virtual void pick_columns(const Tensor& from, const Tensor& columns, const Tensor& to) const;
  /// to (N, C) = the rows `index` of from (M, C); index (N) i32, below M. Any mix of f32 and bf16.
  virtual void gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const = 0;
  /// to (M, C)[index] += rows (N, C), in row order (deterministic). Any mix of f32 and bf16.
  virtual void scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to) const = 0;
  /// Rotary embedding (Su et al. 2021, Hugging Face half-split layout) of the query and key columns of qkv, in place.
  /// direction +1 rotates, -1 rotates back (its gradient). qkv (M, (H + 2G) D) act = [q | k | v].
  virtual void rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions,
                      double theta, int direction) const = 0;

  // ---- attention over packed sequences; never holds T x T ----
  /// Why this table cannot do attention of a shape, with the nearest that it can; empty: it can.
  [[nodiscard]] virtual std::string attention_refusal(const AttentionShape& /*shape*/) const { return {}; }
  /// out (M, H D) act; lse (M, H) f32 = log-sum-exp of scaled scores, for the backward pass. scale = 1/sqrt(D).
  virtual void attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                         const Tensor& out, const Tensor& lse) const = 0;
  /// dqkv (M, (H + 2G) D) act is overwritten.
  virtual void attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                  const AttentionShape& shape, const SequenceLayout& layout,
                                  const Tensor& dqkv) const = 0;

  // ---- fused output layer and loss, in row blocks and vocabulary chunks; see distillation_options.hpp ----
  virtual Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head) const = 0;
  virtual Pending<LossSums> distillation_head(const DistillationHead& head) const = 0;
  /// The same of an output layer that is cut over the vocabulary; called by all ranks of part.group at once. head,
  /// vocabulary and dhead are of this rank's tokens and the packs may be null when it has none; hidden, targets, top k
  /// and shared_vocabulary are whole. A teacher's head or logits are cut likewise, so that below shared_vocabulary a
  /// rank has the same tokens of both; teacher_vocabulary is the whole one. Sums are of the whole vocabulary, the same
  /// bits on every rank; dhidden is this rank's partial sum.
  virtual Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head, const VocabularyPart& part) const = 0;
  virtual Pending<LossSums> distillation_head(const DistillationHead& head, const VocabularyPart& part) const = 0;
  /// Plain logits (M, V) f32 or act, for boundary = "logits": the same product as `linear` without bias.
  /// Top-k among the first `columns` (0: all) of each row of logits (M, V) f32: values (M, k) f32 descending, indices
  /// (M, k) i32; ties: lower index first. 1 <= k <= columns.
  virtual void top_k(const Tensor& logits, const Tensor& values, const Tensor& indices,
                     std::int64_t columns = 0) const = 0;

  // ---- flat vectors (f32) ----
  /// AdamW (Loshchilov & Hutter 2019) on flat ranges; the gradient is set to zero on the way.
  virtual void adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                     std::span<float> variance, const AdamWStep& step) const = 0;
  /// The same, and the new values rounded to bf16 as well: `rounded`, as long as `value`.
  virtual void adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                     std::span<float> variance, const AdamWStep& step, std::span<bfloat16> rounded) const;
  /// Sum of squares in a fixed order, accumulated in f64.
  [[nodiscard]] virtual Pending<double> sum_of_squares(std::span<const float> values) const = 0;
  virtual void add_into(std::span<float> into, std::span<const float> values) const = 0;
};

}  // namespace maestro
