// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/cuda/nccl_communicator.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/collective/rank_part.hpp"
#include "runtime/collective/reduction_round.hpp"

namespace maestro {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  return dtype == DType::bf16 ? ncclBfloat16 : ncclFloat32;
}

bool all_equal(std::span<const Tensor> parts) {
  return std::ranges::all_of(parts, [&](const Tensor& part) { return part.rows() == parts[0].rows(); });
}

bool all_equal(std::span<const std::span<float>> shards) {
  return std::ranges::all_of(shards, [&](std::span<float> shard) { return shard.size() == shards[0].size(); });
}

std::size_t element_index(const Tensor& tensor, const TensorBlock& block) {
  return static_cast<std::size_t>(block.row * tensor.columns() + block.column);
}

std::byte* place_of(const Tensor& tensor, const TensorBlock& block) {
  return tensor.raw() + element_index(tensor, block) * size_of(tensor.dtype());
}

std::size_t pitch_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.columns()) * size_of(tensor.dtype());
}

std::size_t width_of(const Tensor& tensor, const TensorBlock& block) {
  return static_cast<std::size_t>(block.columns) * size_of(tensor.dtype());
}

}  // namespace

ncclUniqueId make_nccl_id() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result == ncclSuccess) return id;
  throw std::runtime_error(std::string("ncclGetUniqueId: ") + ncclGetErrorString(result) + ": " +
                           ncclGetLastError(nullptr));
}

void NcclCommunicator::all_reduce_sum(std::span<float> values) {
  all_reduce(values, CollectiveKind::all_reduce_sum, ncclSum);
}

void NcclCommunicator::all_reduce_max(std::span<float> values) {
  all_reduce(values, CollectiveKind::all_reduce_max, ncclMax);
}

void NcclCommunicator::all_reduce(std::span<float> values, CollectiveKind kind, ncclRedOp_t operation) {
  begin({.kind = kind, .values = values});
  if (values.empty()) return;
  queue_.one("ncclAllReduce", [&](ncclComm_t group) {
    return ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, operation, group, queue_.stream());
  });
}

void NcclCommunicator::all_gather_rows(const Tensor& part, const Tensor& whole) {
  begin({.kind = CollectiveKind::all_gather_rows, .from = part, .to = whole});
  if (whole.elements() == 0) return;
  const std::vector<Tensor> places = places_of(part, whole, CollectiveKind::all_gather_rows);
  if (!all_equal(places)) return gather_uneven(part, places);
  queue_.one("ncclAllGather", [&](ncclComm_t group) {
    return ncclAllGather(part.raw(), whole.raw(), part.bytes(), ncclUint8, group, queue_.stream());
  });
}

void NcclCommunicator::gather_uneven(const Tensor& part, std::span<const Tensor> places) {
  const Tensor& own = places[static_cast<std::size_t>(rank())];
  if (part.bytes() > 0 && part.raw() != own.raw()) {
    queue_.cuda(cudaMemcpyAsync(own.raw(), part.raw(), part.bytes(), cudaMemcpyDeviceToDevice, queue_.stream()),
                "cudaMemcpyAsync");
  }
  queue_.group("all_gather_rows", [&](ncclComm_t group, NcclQueue::GroupResult& result) {
    for (int peer = 0; peer < static_cast<int>(size()); ++peer) {
      const Tensor& place = places[static_cast<std::size_t>(peer)];
      if (peer == rank()) continue;
      if (part.bytes() > 0) {
        result.add(ncclSend(part.raw(), part.bytes(), ncclUint8, peer, group, queue_.stream()), "ncclSend");
      }
      if (place.bytes() > 0) {
        result.add(ncclRecv(place.raw(), place.bytes(), ncclUint8, peer, group, queue_.stream()), "ncclRecv");
      }
    }
  });
}

void NcclCommunicator::reduce_scatter_rows(const Tensor& whole, const Tensor& part) {
  begin({.kind = CollectiveKind::reduce_scatter_rows, .from = whole, .to = part});
  if (whole.elements() == 0) return;
  const std::vector<Tensor> places = places_of(part, whole, CollectiveKind::reduce_scatter_rows);
  if (!all_equal(places)) return reduce_uneven(part, places);
  queue_.one("ncclReduceScatter", [&](ncclComm_t group) {
    return ncclReduceScatter(whole.raw(), part.raw(), static_cast<std::size_t>(part.elements()),
                             nccl_type(part.dtype()), ncclSum, group, queue_.stream());
  });
}

void NcclCommunicator::reduce_uneven(const Tensor& part, std::span<const Tensor> places) {
  queue_.group("reduce_scatter_rows", [&](ncclComm_t group, NcclQueue::GroupResult& result) {
    for (int owner = 0; owner < static_cast<int>(size()); ++owner) {
      const Tensor& piece = places[static_cast<std::size_t>(owner)];
      if (piece.elements() == 0) continue;
      void* target = owner == rank() ? part.raw() : nullptr;  // only the root receives
      result.add(ncclReduce(piece.raw(), target, static_cast<std::size_t>(piece.elements()), nccl_type(piece.dtype()),
                            ncclSum, owner, group, queue_.stream()),
                 "ncclReduce");
    }
  });
}

void NcclCommunicator::reduce_to_shards(std::span<float> values) {
  begin({.kind = CollectiveKind::reduce_to_shards, .values = values});
  const std::vector<std::span<float>> shards = shards_of(values);
  if (values.empty() || size() == 1) return;
  float* const own = shards[static_cast<std::size_t>(rank())].data();
  if (all_equal(shards)) {
    return queue_.one("ncclReduceScatter", [&](ncclComm_t group) {
      return ncclReduceScatter(values.data(), own, shards[0].size(), ncclFloat32, ncclSum, group, queue_.stream());
    });
  }
  queue_.group("reduce_to_shards", [&](ncclComm_t group, NcclQueue::GroupResult& result) {
    for (int owner = 0; owner < static_cast<int>(size()); ++owner) {
      const std::span<float> shard = shards[static_cast<std::size_t>(owner)];
      if (shard.empty()) continue;
      result.add(ncclReduce(shard.data(), owner == rank() ? own : nullptr, shard.size(), ncclFloat32, ncclSum, owner,
                            group, queue_.stream()),
                 "ncclReduce");
    }
  });
}

void NcclCommunicator::gather_shards(std::span<float> values) {
  begin({.kind = CollectiveKind::gather_shards, .values = values});
  const std::vector<std::span<float>> shards = shards_of(values);
  if (values.empty() || size() == 1) return;
  if (all_equal(shards)) {
    float* const own = shards[static_cast<std::size_t>(rank())].data();
    return queue_.one("ncclAllGather", [&](ncclComm_t group) {
      return ncclAllGather(own, values.data(), shards[0].size(), ncclFloat32, group, queue_.stream());
    });
  }
  queue_.group("gather_shards", [&](ncclComm_t group, NcclQueue::GroupResult& result) {
    for (int owner = 0; owner < static_cast<int>(size()); ++owner) {
      const std::span<float> shard = shards[static_cast<std::size_t>(owner)];
      if (shard.empty()) continue;
      result.add(ncclBroadcast(shard.data(), shard.data(), shard.size(), ncclFloat32, owner, group, queue_.stream()),
                 "ncclBroadcast");
    }
  });
}

void NcclCommunicator::exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                                std::span<const BlockTransfer> receives) {
  const CollectiveCall call = {
      .kind = CollectiveKind::exchange, .from = from, .to = to, .sends = sends, .receives = receives};
  begin(call);
  const std::vector<Strip> out = strips_of(from, sends, outgoing_);
  const std::vector<Strip> in = strips_of(to, receives, incoming_);
  copy_own_blocks(call);
  for (const Strip& strip : out) {
    if (!strip.staged) continue;
    const std::size_t width = width_of(from, strip.block);
    queue_.cuda(
        cudaMemcpy2DAsync(strip.memory, width, place_of(from, strip.block), pitch_of(from), width,
                          static_cast<std::size_t>(strip.block.rows), cudaMemcpyDeviceToDevice, queue_.stream()),
        "cudaMemcpy2DAsync");
  }
  queue_.group("exchange", [&](ncclComm_t group, NcclQueue::GroupResult& result) {
    for (const Strip& strip : out) {
      result.add(ncclSend(strip.memory, strip.bytes, ncclUint8, strip.peer, group, queue_.stream()), "ncclSend");
    }
    for (const Strip& strip : in) {
      result.add(ncclRecv(strip.memory, strip.bytes, ncclUint8, strip.peer, group, queue_.stream()), "ncclRecv");
    }
  });
  for (const Strip& strip : in) {
    if (!strip.staged) continue;
    const std::size_t width = width_of(to, strip.block);
    queue_.cuda(
        cudaMemcpy2DAsync(place_of(to, strip.block), pitch_of(to), strip.memory, width, width,
                          static_cast<std::size_t>(strip.block.rows), cudaMemcpyDeviceToDevice, queue_.stream()),
        "cudaMemcpy2DAsync");
  }
}

std::vector<NcclCommunicator::Strip> NcclCommunicator::strips_of(const Tensor& tensor,
                                                                 std::span<const BlockTransfer> transfers,
                                                                 DeviceMemory& staging) {
  constexpr std::size_t alignment = 256;  // as cudaMalloc's: NCCL copies aligned memory by wide words
  std::vector<Strip> strips;
  std::size_t staged = 0;
  for (const auto& [peer, block] : transfers) {
    if (peer == rank() || block.rows == 0 || block.columns == 0) continue;
    Strip strip{.peer = static_cast<int>(peer), .block = block};
    strip.bytes = width_of(tensor, block) * static_cast<std::size_t>(block.rows);
    strip.staged = block.rows > 1 && block.columns != tensor.columns();
    if (strip.staged) staged += (strip.bytes + alignment - 1) / alignment * alignment;
    strips.push_back(strip);
  }
  queue_.cuda(staging.reserve(staged), "cudaMalloc");
  std::byte* next = staging.data();
  for (Strip& strip : strips) {
    strip.memory = strip.staged ? next : place_of(tensor, strip.block);
    if (strip.staged) next += (strip.bytes + alignment - 1) / alignment * alignment;
  }
  return strips;
}

void NcclCommunicator::copy_own_blocks(const CollectiveCall& call) {
  for_each_match(call.sends, rank(), call.receives, rank(), [&](const TensorBlock* sent, const TensorBlock* received) {
    const bool fits =
        sent != nullptr && received != nullptr && sent->rows == received->rows && sent->columns == received->columns;
    if (!fits) {
      queue_.refuse("exchange: rank " + std::to_string(rank()) +
                    " sends itself other blocks than it receives from itself");
    }
    if (sent->rows == 0 || sent->columns == 0) return;
    queue_.cuda(cudaMemcpy2DAsync(place_of(call.to, *received), pitch_of(call.to), place_of(call.from, *sent),
                                  pitch_of(call.from), width_of(call.from, *sent), static_cast<std::size_t>(sent->rows),
                                  cudaMemcpyDeviceToDevice, queue_.stream()),
                "cudaMemcpy2DAsync");
  });
}

std::vector<Tensor> NcclCommunicator::places_of(const Tensor& part, const Tensor& whole, CollectiveKind kind) {
  std::vector<Tensor> places;
  for (std::int64_t owner = 0; owner < size(); ++owner) {
    const RankPart rows = rank_part(whole.rows(), size(), owner);
    places.push_back(whole.row_slice(rows.first, rows.count));
  }
  const std::int64_t own = places[static_cast<std::size_t>(rank())].rows();
  if (part.rows() == own) return places;
  queue_.refuse(std::string(name_of(kind)) + ": rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
                " has a part of " + std::to_string(part.rows()) + " rows; its part of " + std::to_string(whole.rows()) +
                " rows is " + std::to_string(own));
}

std::vector<std::span<float>> NcclCommunicator::shards_of(std::span<float> values) const {
  std::vector<std::span<float>> shards;
  for (std::int64_t owner = 0; owner < size(); ++owner) {
    const ShardRange shard =
        shard_range(values.size(), static_cast<std::size_t>(size()), static_cast<std::size_t>(owner));
    shards.push_back(values.subspan(shard.first, shard.count));
  }
  return shards;
}

void NcclCommunicator::begin(const CollectiveCall& call) {
  queue_.begin(name_of(call.kind));
  const std::string wrong = side_violation(call, rank(), size());
  if (!wrong.empty()) queue_.refuse(wrong);
}

}  // namespace maestro
