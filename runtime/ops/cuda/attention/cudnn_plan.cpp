// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/cudnn_plan.hpp"

#include <algorithm>

namespace maestro::cuda {
namespace {

constexpr std::int64_t least_batch = 4;
constexpr std::int64_t least_length = 128;  // tile length of the library's kernels
constexpr std::int64_t least_rows = 512;
constexpr std::int64_t key_step = 128;  // keys that a kernel for Hopper takes at a time

// Ragged statistics came with 9.6 and offsets of 64 bits with 9.5; until 9.18 ragged backward passes on Hopper read
// workspace that nothing had written.
constexpr std::size_t least_ragged_version = 91800;
// Versions whose attention has documented faults.
constexpr std::array<std::size_t, 2> faulty_versions = {91000, 91001};

std::string version_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

CudnnKey key_of(const AttentionShape& shape) {
  return {.heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_size = shape.head_size,
          .causal = shape.causal,
          .scale = shape.score_scale(),
          .window = shape.window,
          .softcap = shape.softcap};
}

/// Returns a view of `heads` heads of D columns, from column `first` on, in rows that have `columns` columns.
HeadView view(const CudnnKey& key, std::int64_t heads, std::int64_t columns, std::int64_t first) {
  return {.sizes = {key.batch, heads, key.length, key.head_size},
          .strides = {key.length * columns, key.head_size, columns, 1},
          .first = first};
}

}  // namespace

SequenceSummary summarize(std::span<const std::int32_t> offsets) {
  SequenceSummary summary;
  if (offsets.size() < 2) return summary;
  summary.sequences = static_cast<std::int64_t>(offsets.size()) - 1;
  summary.rows = offsets.back();
  std::int64_t shortest = summary.rows;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t length = offsets[i + 1] - offsets[i];
    summary.longest = std::max(summary.longest, length);
    shortest = std::min(shortest, length);
  }
  summary.uniform = shortest == summary.longest && shortest > 0;
  return summary;
}

std::int64_t bucket(std::int64_t value, std::int64_t least) {
  std::int64_t size = least;
  while (size < value) {
    const std::int64_t between = size + size / 2;
    if (value <= between) return between;
    size *= 2;
  }
  return size;
}

CudnnKey dense_key(const AttentionShape& shape, const SequenceSummary& summary) {
  CudnnKey key = key_of(shape);
  key.batch = summary.sequences;
  key.length = summary.longest;
  key.rows = summary.rows;
  return key;
}

CudnnKey ragged_key(const AttentionShape& shape, const SequenceSummary& summary) {
  CudnnKey key = key_of(shape);
  key.dense = false;
  key.batch = bucket(summary.sequences, least_batch);
  key.length = bucket(summary.longest, least_length);
  key.rows = bucket(summary.rows, least_rows);
  return key;
}

std::string describe(const CudnnKey& key) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  return std::string(key.causal ? "causal" : "bidirectional") + " attention of " + text(key.heads) + " heads of " +
         text(key.head_size) + " over " + text(key.kv_heads) + " key heads, " +
         (key.window > 0 ? "a window of " + text(key.window) + ", " : "") + text(key.batch) + " sequences of " +
         (key.dense ? "" : "up to ") + text(key.length);
}

std::string version_refusal(const CudnnKey& key, std::size_t version) {
  if (std::ranges::find(faulty_versions, version) != faulty_versions.end()) {
    return "attention of cuDNN " + version_text(version) + " is faulty; the next that is not is 9.10.2";
  }
  if (key.softcap > 0) return "cuDNN caps no scores";
  if (!key.dense && version < least_ragged_version) {
    return "sequences of several lengths need cuDNN " + version_text(least_ragged_version) + " or newer, and this is " +
           version_text(version);
  }
  return {};
}

bool masks_last_keys(const CudnnKey& key) {
  return key.dense && !key.causal && key.length % key_step != 0;
}

HeadView part_of_qkv(const CudnnKey& key, HeadPart part) {
  switch (part) {
    case HeadPart::query:
      return view(key, key.heads, key.qkv_columns(), 0);
    case HeadPart::key:
      return view(key, key.kv_heads, key.qkv_columns(), key.heads * key.head_size);
    case HeadPart::value:
      return view(key, key.kv_heads, key.qkv_columns(), (key.heads + key.kv_heads) * key.head_size);
  }
  return {};
}

HeadView view_of_out(const CudnnKey& key) {
  return view(key, key.heads, key.out_columns(), 0);
}

HeadView view_of_stats(const CudnnKey& key) {
  HeadView stats{.sizes = {key.batch, key.heads, key.length, 1}};
  // A dense backward pass reads (B, H, S) only; a ragged pass finds its rows by offsets.
  stats.strides = key.dense ? std::array<std::int64_t, 4>{key.heads * key.length, key.length, 1, 1}
                            : std::array<std::int64_t, 4>{key.heads * key.length, 1, key.heads, 1};
  return stats;
}

}  // namespace maestro::cuda
