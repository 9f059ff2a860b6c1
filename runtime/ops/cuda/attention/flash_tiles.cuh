// SPDX-License-Identifier: Apache-2.0
// Geometry and tiles of the attention kernels. Widths are classes of head sizes: 64, 128, 256.
//
// Every kernel has the same shape: a block owns a tile of rows, 16 per warp, and streams tiles of other rows past it.
//   forward:  owns q, streams k and v         dq:  owns q and dout, streams k and v
//   dk, dv:   owns k and v, streams q and dout
#pragma once

#include "runtime/ops/cuda/attention/flash_copies.cuh"
#include "runtime/ops/cuda/attention/flash_fragments.cuh"
#include "runtime/ops/cuda/attention/flash_work.hpp"
#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {

template <class T, int Width>
struct FlashGeometry {
  static constexpr bool wide_f32 = sizeof(T) == 4 && Width == 256;  // fewer rows, to save shared memory
  static constexpr int warps = wide_f32 ? 2 : 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int own_rows = warps * warp_rows;
  static constexpr int streamed_forward = sizeof(T) == 2 && Width < 256 ? 64 : 32;
  static constexpr int streamed_backward = sizeof(T) == 2 && Width == 64 ? 64 : 32;
  static constexpr int stages = sizeof(T) == 2 ? 2 : 1;  ///< stages of streamed tiles in shared memory
  /// Elements of a row in shared memory: 16 bytes more than a power of two, so that eight rows lie in different banks.
  static constexpr int stride = Width + pack_width<T>;
  /// Elements of each warp's strip, which only f32 has.
  template <int Streamed>
  static constexpr int strip = sizeof(T) == 4 ? warp_rows* strip_stride<Streamed / mma_columns> : 0;
  /// Returns the shared memory of a block in bytes, with `own` resident tiles and, in each stage, two streamed tiles of
  /// `Streamed` rows.
  template <int Streamed>
  static constexpr std::size_t shared_bytes(int own) {
    return sizeof(T) *
           static_cast<std::size_t>(stride * (own * own_rows + 2 * stages * Streamed) + warps * strip<Streamed>);
  }
};

/// Returns a head's columns as products see them: the next multiple of 16, the rest filled with zeros.
__device__ __forceinline__ int padded_columns(int head_size) {
  return (head_size + mma_inner - 1) / mma_inner * mma_inner;
}

/// Rows of a head in packed memory: row r begins at data + r * stride.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  __device__ __forceinline__ T* row(std::int64_t index) const { return data + index * stride; }
};

/// Starts to load rows [first, end) of a head into `tile`, with zeros in the tile's other rows and columns; see
/// copy_later(). Called by all threads.
template <class T, int Rows, int Stride>
__device__ __forceinline__ void load_tile(T* tile, const HeadRows<const T>& from, std::int64_t first, std::int64_t end,
                                          int head_size) {
  constexpr int width = pack_width<T>;
  const int packs = padded_columns(head_size) / width;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * packs; i += static_cast<int>(blockDim.x)) {
    const int row = i / packs;
    const int column = i % packs * width;
    T* const to = tile + row * Stride + column;
    if (first + row < end && column < head_size) {
      copy_later(to, from.row(first + row) + column);
    } else {
      store_pack<T, width>(to, Pack<T, width>{});
    }
  }
}

/// Starts to load the same rows of two heads, each into its tile; see load_tile().
template <class T, int Rows, int Stride>
__device__ __forceinline__ void load_tiles(T* a, const HeadRows<const T>& of_a, T* b, const HeadRows<const T>& of_b,
                                           std::int64_t first, std::int64_t end, int head_size) {
  load_tile<T, Rows, Stride>(a, of_a, first, end, head_size);
  load_tile<T, Rows, Stride>(b, of_b, first, end, head_size);
}

/// Writes the warp's accumulator, each row times its `factor`, to a head's rows [first, end).
template <class T, int N>
__device__ __forceinline__ void store_rows(const float (&acc)[N][4], const float (&factor)[2], const HeadRows<T>& to,
                                           std::int64_t first, std::int64_t end, int head_size) {
  MAESTRO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + row_of_lane(half);
    if (row < end) {
      MAESTRO_UNROLL
      for (int n = 0; n < N; ++n) {
        if (n * mma_columns < head_size) {
          const Pack<T, 2> pack = {from_float<T>(acc[n][2 * half] * factor[half]),
                                   from_float<T>(acc[n][2 * half + 1] * factor[half])};
          store_pack<T, 2>(to.row(row) + column_of_lane(n), pack);
        }
      }
    }
  }
}

template <int N>
__device__ __forceinline__ void set_zero(float (&acc)[N][4]) {
  MAESTRO_UNROLL
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 4; ++i) acc[n][i] = 0;
  }
}

inline constexpr std::int64_t most_keys = INT32_MAX;  ///< keys of a sequence, at most

/// Places [first, end) of queries.
struct FlashPlaces {
  std::int64_t first;
  std::int64_t end;
};

/// Sizes and memory that all attention kernels share; qkv (M, (H + 2G) D) = [q | k | v], lse and delta (M, H) f32.
struct FlashProblem {
  const std::int32_t* offsets;  ///< device memory, S + 1
  const std::int32_t* ends;     ///< device memory, M: SequenceLayout::ends; or null
  std::int32_t sequences;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_size;
  bool causal;
  float scale;          ///< factor of the scores
  float softcap;        ///< 0: none
  std::int64_t window;  ///< most_keys: all
  QueryPart queries;
  /// Returns whether the kernels for scores without softcap, window and ends compute it.
  [[nodiscard]] bool plain() const { return softcap == 0 && window == most_keys && ends == nullptr; }
  /// Returns the block's tile of queries. With a causal mask the last tiles have the most keys; they begin first, so
  /// that the short tiles fill the end.
  [[nodiscard]] __device__ __forceinline__ FlashTile query_tile(int own_rows) const {
    const auto number = static_cast<std::int32_t>(causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    return flash_tile(offsets, sequences, own_rows, number);
  }
  /// Returns the part's queries in the tile's sequence. Tiles of kernels divide QueryTiles::unit.
  [[nodiscard]] __device__ __forceinline__ QueryTiles query_tiles(const FlashTile& tile) const {
    return {queries, tile.sequence, tile.stop - tile.begin};
  }
  [[nodiscard]] __device__ __forceinline__ bool has_queries(const FlashTile& tile) const {
    return tile.first < tile.end && query_tiles(tile).has(tile.first - tile.begin);
  }
  /// Returns the places (QueryTiles::row_at) of the part's queries among [first, end), rows of the tile's sequence.
  /// With several parts they begin and end with units, so that a step of streamed rows is within a unit.
  [[nodiscard]] __device__ __forceinline__ FlashPlaces query_places(const FlashTile& tile, std::int64_t first,
                                                                    std::int64_t end) const {
    first -= tile.begin;
    end -= tile.begin;
    if (queries.parts == 1) return {first, end};
    constexpr std::int64_t unit = QueryTiles::unit;
    const QueryTiles tiles = query_tiles(tile);
    return {tiles.place_of(first / unit * unit), tiles.place_of((end + unit - 1) / unit * unit)};
  }
  [[nodiscard]] __device__ __forceinline__ FlashTile key_tile(int own_rows) const {
    return flash_tile(offsets, sequences, own_rows, static_cast<std::int32_t>(blockIdx.x));
  }
  /// Returns the end of the keys that the tile's queries see.
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ std::int64_t end_of_keys(const FlashTile& tile) const {
    return causal ? end_of_keys<Plain>(tile, tile.end - 1) : tile.stop;
  }
  /// Returns the end of the keys that a row of the tile's sequence sees with a causal mask; rows from tile.stop on see
  /// themselves.
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ std::int64_t end_of_keys(const FlashTile& tile, std::int64_t query) const {
    return Plain || ends == nullptr || query >= tile.stop ? query + 1 : tile.begin + ends[query];
  }
  /// Returns the factor of scores after shape_scores().
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ float shaped_scale() const {
    return Plain ? scale : 1.0F;
  }
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ bool hides(const FlashTile& tile, std::int64_t query,
                                                      std::int64_t key) const {
    return causal && (key >= end_of_keys<Plain>(tile, query) || (!Plain && query - key >= window));
  }
  /// Returns the first key that a query of the tile sees.
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_key(const FlashTile& tile) const {
    if (Plain || tile.first - window < tile.begin) return tile.begin;
    return tile.first - window + 1;
  }
  /// Returns the first query that sees a key of the tile: later rows see no fewer.
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_query(const FlashTile& tile) const {
    if (!causal) return tile.begin;
    if (Plain || ends == nullptr) return tile.first;
    std::int64_t low = tile.begin;  // the answer is in [low, high]
    std::int64_t high = tile.first;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (end_of_keys<Plain>(tile, middle) > tile.first) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  /// Returns the end of the queries that see a key of the tile.
  template <bool Plain>
  [[nodiscard]] __device__ __forceinline__ std::int64_t last_query(const FlashTile& tile) const {
    if (Plain || tile.end - 1 + window > tile.stop) return tile.stop;
    return tile.end - 1 + window;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t qkv_columns() const {
    return static_cast<std::int64_t>(heads + 2 * kv_heads) * head_size;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t out_columns() const {
    return static_cast<std::int64_t>(heads) * head_size;
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ HeadRows<T> slot(T* qkv, int index) const {
    return {qkv + static_cast<std::int64_t>(index) * head_size, qkv_columns()};
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ HeadRows<T> query(T* qkv, int head) const {
    return slot(qkv, head);
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ HeadRows<T> key(T* qkv, int kv_head) const {
    return slot(qkv, heads + kv_head);
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ HeadRows<T> value(T* qkv, int kv_head) const {
    return slot(qkv, heads + kv_heads + kv_head);
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ HeadRows<T> head_of_out(T* out, int head) const {
    return {out + static_cast<std::int64_t>(head) * head_size, out_columns()};
  }
};

inline constexpr float log2_of_e = 1.4426950408889634F;

}  // namespace maestro::cuda
