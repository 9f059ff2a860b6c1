// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/collective_share.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "runtime/collective/reduction_round.hpp"

namespace maestro {
namespace {

/// Values combined at a time: the running result stays in the L1 cache.
constexpr std::size_t chunk = 1024;
using Chunk = std::array<float, chunk>;

struct Add {
  static float combine(float total, float value) { return total + value; }
};
/// A maximum that keeps a NaN of any rank.
struct Max {
  static float combine(float total, float value) { return value > total || value != value ? value : total; }
};

template <class Operation, class T>
void combine_into(Chunk& total, const T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = Operation::combine(total[i], static_cast<float>(values[i]));
}

template <class T>
void load(Chunk& total, const T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = static_cast<float>(values[i]);
}

template <class T>
void store(const Chunk& total, T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(total[i]);
}

/// Combines the shard of `rank` over all ranks' values; writes the result to the shards in `to`.
template <class Operation>
void combine_shard(std::span<const CollectiveCall> calls, std::size_t rank, std::span<const CollectiveCall> to) {
  const ShardRange shard = shard_range(calls[0].values.size(), calls.size(), rank);
  Chunk total;
  for (std::size_t done = 0; done < shard.count; done += chunk) {
    const std::size_t first = shard.first + done;
    const std::size_t count = std::min(chunk, shard.count - done);
    load(total, calls[0].values.data() + first, count);
    for (const CollectiveCall& call : calls.subspan(1)) {
      combine_into<Operation>(total, call.values.data() + first, count);
    }
    for (const CollectiveCall& call : to) store(total, call.values.data() + first, count);
  }
}

template <class Operation>
void all_reduce(std::span<const CollectiveCall> calls, std::size_t rank) {
  if (calls.size() > 1) combine_shard<Operation>(calls, rank, calls);
}

/// Reduces to shards. No rank reads memory that another writes: each reads and writes only its shard.
void reduce_to_shards(std::span<const CollectiveCall> calls, std::size_t rank) {
  combine_shard<Add>(calls, rank, calls.subspan(rank, 1));
}

void gather_shards(std::span<const CollectiveCall> calls, std::size_t rank) {
  for (std::size_t owner = 0; owner < calls.size(); ++owner) {
    const ShardRange shard = shard_range(calls[0].values.size(), calls.size(), owner);
    if (owner == rank || shard.count == 0) continue;
    std::copy_n(calls[owner].values.data() + shard.first, shard.count, calls[rank].values.data() + shard.first);
  }
}

void all_gather(std::span<const CollectiveCall> calls, std::size_t rank) {
  const Tensor& whole = calls[rank].to;
  std::int64_t row = 0;
  for (const CollectiveCall& call : calls) {
    const Tensor& part = call.from;
    std::byte* place = whole.row_slice(row, part.rows()).raw();
    if (part.elements() > 0 && part.raw() != place) std::memcpy(place, part.raw(), part.bytes());
    row += part.rows();
  }
}

template <class T>
void reduce_scatter(std::span<const CollectiveCall> calls, std::size_t rank) {
  const Tensor& part = calls[rank].to;
  const auto row = first_row(calls, static_cast<std::int64_t>(rank));
  const auto offset = static_cast<std::size_t>(row * part.columns());
  const auto elements = static_cast<std::size_t>(part.elements());
  Chunk total;
  for (std::size_t done = 0; done < elements; done += chunk) {
    const std::size_t count = std::min(chunk, elements - done);
    load(total, calls[0].from.data<T>() + offset + done, count);
    for (const CollectiveCall& call : calls.subspan(1)) {
      combine_into<Add>(total, call.from.data<T>() + offset + done, count);
    }
    store(total, part.data<T>() + done, count);
  }
}

std::byte* place_of(const Tensor& tensor, const TensorBlock& block) {
  return tensor.raw() + static_cast<std::size_t>(block.row * tensor.columns() + block.column) * size_of(tensor.dtype());
}

void copy_block(const Tensor& from, const TensorBlock& source, const Tensor& to, const TensorBlock& target) {
  if (source.rows == 0 || source.columns == 0) return;
  const std::size_t element = size_of(from.dtype());
  const std::size_t from_pitch = static_cast<std::size_t>(from.columns()) * element;
  const std::size_t to_pitch = static_cast<std::size_t>(to.columns()) * element;
  const std::size_t width = static_cast<std::size_t>(source.columns) * element;
  const std::byte* read = place_of(from, source);
  std::byte* write = place_of(to, target);
  if (from_pitch == width && to_pitch == width) {
    std::memcpy(write, read, width * static_cast<std::size_t>(source.rows));
    return;
  }
  for (std::int64_t row = 0; row < source.rows; ++row, read += from_pitch, write += to_pitch) {
    std::memcpy(write, read, width);
  }
}

void exchange(std::span<const CollectiveCall> calls, std::size_t rank) {
  const CollectiveCall& own = calls[rank];
  for (std::size_t peer = 0; peer < calls.size(); ++peer) {
    for_each_match(calls[peer].sends, static_cast<std::int64_t>(rank), own.receives, static_cast<std::int64_t>(peer),
                   [&](const TensorBlock* sent, const TensorBlock* received) {
                     copy_block(calls[peer].from, *sent, own.to, *received);
                   });
  }
}

}  // namespace

void perform_share(std::span<const CollectiveCall> calls, std::int64_t rank) {
  const auto own = static_cast<std::size_t>(rank);
  switch (calls[own].kind) {
    case CollectiveKind::all_reduce_sum:
      return all_reduce<Add>(calls, own);
    case CollectiveKind::all_reduce_max:
      return all_reduce<Max>(calls, own);
    case CollectiveKind::all_gather_rows:
      return all_gather(calls, own);
    case CollectiveKind::reduce_scatter_rows:
      return calls[own].from.dtype() == DType::f32 ? reduce_scatter<float>(calls, own)
                                                   : reduce_scatter<bfloat16>(calls, own);
    case CollectiveKind::reduce_to_shards:
      return reduce_to_shards(calls, own);
    case CollectiveKind::gather_shards:
      return gather_shards(calls, own);
    case CollectiveKind::exchange:
      return exchange(calls, own);
  }
}

}  // namespace maestro
