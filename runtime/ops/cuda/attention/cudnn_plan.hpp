// SPDX-License-Identifier: Apache-2.0
// Description of packed attention for cuDNN: sizes, strides, and which calls share a plan. Pure.
//
// Tensors are (B, heads, S, D) over packed memory: a row holds [q | k | v], so that a step of 1 in S is a row.
//   dense:   all sequences are equally long; sequence b begins at row b S.
//   ragged:  an array of offsets holds the begin of each sequence, another its length, and S is a bound.
//            B, S and the number of rows are rounded up, so that most micro-batches share a plan: sequences added to B
//            are empty.
// cuDNN's log-sum-exps ("stats") are (B, H, S) for dense plans and (rows, H) for ragged plans: M H numbers either way.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// Figures of a micro-batch's sequences that the host needs.
struct SequenceSummary {
  std::int64_t sequences = 0;
  std::int64_t rows = 0;
  std::int64_t longest = 0;
  bool uniform = false;  ///< all have the same length, and are not empty
};
/// Summarises S + 1 offsets in host memory.
[[nodiscard]] SequenceSummary summarize(std::span<const std::int32_t> offsets);

/// Calls with equal keys share a plan.
struct CudnnKey {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 1;
  bool causal = true;
  double scale = 0;         ///< factor of the scores
  std::int64_t window = 0;  ///< window, as in AttentionShape
  double softcap = 0;
  bool dense = true;
  std::int64_t batch = 0;   ///< B
  std::int64_t length = 0;  ///< S
  std::int64_t rows = 0;    ///< rows, at most
  auto operator<=>(const CudnnKey&) const = default;
  [[nodiscard]] std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_size; }
  [[nodiscard]] std::int64_t out_columns() const { return heads * head_size; }
};
/// Returns the key for uniform sequences.
[[nodiscard]] CudnnKey dense_key(const AttentionShape& shape, const SequenceSummary& summary);
[[nodiscard]] CudnnKey ragged_key(const AttentionShape& shape, const SequenceSummary& summary);
[[nodiscard]] std::string describe(const CudnnKey& key);

/// Returns the reason why a cuDNN of this version (9.18.1 is 91801) is not used for a plan; empty: it is used.
[[nodiscard]] std::string version_refusal(const CudnnKey& key, std::size_t version);

/// Returns whether the backward pass receives each sequence's length although its plan has exactly that length. Kernels
/// for Hopper step over keys 128 at a time, and before cuDNN 9.26 mask keys after the last only in steps of 64: with
/// log-sum-exps below -88.7 = -ln(FLT_MAX) gradients became NaN. A causal mask covers these keys anyway.
[[nodiscard]] bool masks_last_keys(const CudnnKey& key);

/// Returns the smallest of least, 1.5 least, 2 least, 3 least, 4 least, ... that is at least `value`. `least` is even.
[[nodiscard]] std::int64_t bucket(std::int64_t value, std::int64_t least);

/// A (B, heads, S, D) view; its data begin at element `first` of its memory.
struct HeadView {
  std::array<std::int64_t, 4> sizes{};
  std::array<std::int64_t, 4> strides{};
  std::int64_t first = 0;
};
enum class HeadPart : std::uint8_t { query, key, value };
/// Returns the view of a part in qkv or dqkv.
[[nodiscard]] HeadView part_of_qkv(const CudnnKey& key, HeadPart part);
/// Returns the view of out or dout.
[[nodiscard]] HeadView view_of_out(const CudnnKey& key);
/// Returns the view of lse, with D = 1.
[[nodiscard]] HeadView view_of_stats(const CudnnKey& key);

}  // namespace maestro::cuda
