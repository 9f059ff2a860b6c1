#include "runtime/collective/cuda/nccl_communicator.hpp"

#include "runtime/collective/sharded_reduction.hpp"

#include <algorithm>
#include <thread>

namespace maestro {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  return dtype == DType::bf16 ? ncclBfloat16 : ncclFloat32;
}

bool all_equal(std::span<const std::int64_t> rows) {
  return std::all_of(rows.begin(), rows.end(), [&](std::int64_t count) { return count == rows[0]; });
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

NcclCommunicator::NcclCommunicator(const NcclRank& rank) : rank_(rank) {
  if (rank.size < 1 || rank.rank < 0 || rank.rank >= rank.size) {
    throw std::invalid_argument("NcclCommunicator: rank " + std::to_string(rank.rank) + " of " +
                                std::to_string(rank.size));
  }
  cuda(cudaGetDevice(&device_), "cudaGetDevice");
  cuda(counts_.reserve(static_cast<std::size_t>(rank.size) * sizeof(std::int64_t)), "cudaMalloc");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&communicator_, static_cast<int>(rank.size), rank.id,
                                                     static_cast<int>(rank.rank), &config);
  settle(result, "ncclCommInitRankConfig");
}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ == nullptr) return;
  ncclResult_t state = rank_.abort->given() ? ncclSystemError : ncclCommFinalize(communicator_);
  while (state == ncclInProgress && !rank_.abort->given()) {
    std::this_thread::yield();
    if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) state = ncclSystemError;
  }
  if (state != ncclSuccess) {
    end();
    return;
  }
  static_cast<void>(ncclCommDestroy(communicator_));  // nothing is left to be lost, and nobody to be told
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
  settle(
      ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, operation, communicator_, rank_.stream),
      "ncclAllReduce");
  finish("ncclAllReduce");
}

void NcclCommunicator::all_gather_rows(const Tensor& part, const Tensor& whole) {
  begin({.kind = CollectiveKind::all_gather_rows, .from = part, .to = whole});
  const auto rows = part_rows(part.rows(), whole.rows(), CollectiveKind::all_gather_rows);
  if (whole.elements() == 0) return;
  if (!all_equal(rows)) return gather_uneven(part, whole, rows);
  settle(ncclAllGather(part.raw(), whole.raw(), part.bytes(), ncclUint8, communicator_, rank_.stream), "ncclAllGather");
  finish("ncclAllGather");
}

void NcclCommunicator::gather_uneven(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) {
  std::vector<Tensor> places;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    places.push_back(whole.row_slice(first, count));
    first += count;
  }
  const Tensor& own = places[static_cast<std::size_t>(rank())];
  if (part.bytes() > 0 && part.raw() != own.raw()) {
    cuda(cudaMemcpyAsync(own.raw(), part.raw(), part.bytes(), cudaMemcpyDeviceToDevice, rank_.stream),
         "cudaMemcpyAsync");
  }
  grouped("all_gather_rows", [&](GroupResult& group) {
    for (int peer = 0; peer < static_cast<int>(size()); ++peer) {
      const Tensor& place = places[static_cast<std::size_t>(peer)];
      if (peer == rank()) continue;
      if (part.bytes() > 0) {
        group.add(ncclSend(part.raw(), part.bytes(), ncclUint8, peer, communicator_, rank_.stream), "ncclSend");
      }
      if (place.bytes() > 0) {
        group.add(ncclRecv(place.raw(), place.bytes(), ncclUint8, peer, communicator_, rank_.stream), "ncclRecv");
      }
    }
  });
  finish("all_gather_rows");
}

void NcclCommunicator::reduce_scatter_rows(const Tensor& whole, const Tensor& part) {
  begin({.kind = CollectiveKind::reduce_scatter_rows, .from = whole, .to = part});
  const auto rows = part_rows(part.rows(), whole.rows(), CollectiveKind::reduce_scatter_rows);
  if (whole.elements() == 0) return;
  if (!all_equal(rows)) return reduce_uneven(whole, part, rows);
  settle(ncclReduceScatter(whole.raw(), part.raw(), static_cast<std::size_t>(part.elements()), nccl_type(part.dtype()),
                           ncclSum, communicator_, rank_.stream),
         "ncclReduceScatter");
  finish("ncclReduceScatter");
}

void NcclCommunicator::reduce_uneven(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows) {
  grouped("reduce_scatter_rows", [&](GroupResult& group) {
    std::int64_t first = 0;
    for (std::int64_t owner = 0; owner < size(); ++owner) {
      const Tensor piece = whole.row_slice(first, rows[static_cast<std::size_t>(owner)]);
      first += piece.rows();
      if (piece.elements() == 0) continue;
      void* target = owner == rank() ? part.raw() : nullptr;  // only the root receives
      group.add(ncclReduce(piece.raw(), target, static_cast<std::size_t>(piece.elements()), nccl_type(piece.dtype()),
                           ncclSum, static_cast<int>(owner), communicator_, rank_.stream),
                "ncclReduce");
    }
  });
  finish("reduce_scatter_rows");
}

void NcclCommunicator::reduce_to_shards(std::span<float> values) {
  begin({.kind = CollectiveKind::reduce_to_shards, .values = values});
  if (values.empty() || size() == 1) return;
  grouped("reduce_to_shards", [&](GroupResult& group) {
    for (int owner = 0; owner < static_cast<int>(size()); ++owner) {
      const std::span<float> shard = shard_of(values, owner);
      if (shard.empty()) continue;
      group.add(ncclReduce(shard.data(), owner == rank() ? shard.data() : nullptr, shard.size(), ncclFloat32, ncclSum,
                           owner, communicator_, rank_.stream),
                "ncclReduce");
    }
  });
  finish("reduce_to_shards");
}

void NcclCommunicator::gather_shards(std::span<float> values) {
  begin({.kind = CollectiveKind::gather_shards, .values = values});
  if (values.empty() || size() == 1) return;
  grouped("gather_shards", [&](GroupResult& group) {
    for (int owner = 0; owner < static_cast<int>(size()); ++owner) {
      const std::span<float> shard = shard_of(values, owner);
      if (shard.empty()) continue;
      group.add(
          ncclBroadcast(shard.data(), shard.data(), shard.size(), ncclFloat32, owner, communicator_, rank_.stream),
          "ncclBroadcast");
    }
  });
  finish("gather_shards");
}

std::span<float> NcclCommunicator::shard_of(std::span<float> values, std::int64_t owner) const {
  const ShardRange shard =
      shard_range(values.size(), static_cast<std::size_t>(size()), static_cast<std::size_t>(owner));
  return values.subspan(shard.first, shard.count);
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
    cuda(cudaMemcpy2DAsync(strip.memory, width, place_of(from, strip.block), pitch_of(from), width,
                           static_cast<std::size_t>(strip.block.rows), cudaMemcpyDeviceToDevice, rank_.stream),
         "cudaMemcpy2DAsync");
  }
  grouped("exchange", [&](GroupResult& group) {
    for (const Strip& strip : out) {
      group.add(ncclSend(strip.memory, strip.bytes, ncclUint8, strip.peer, communicator_, rank_.stream), "ncclSend");
    }
    for (const Strip& strip : in) {
      group.add(ncclRecv(strip.memory, strip.bytes, ncclUint8, strip.peer, communicator_, rank_.stream), "ncclRecv");
    }
  });
  for (const Strip& strip : in) {
    if (!strip.staged) continue;
    const std::size_t width = width_of(to, strip.block);
    cuda(cudaMemcpy2DAsync(place_of(to, strip.block), pitch_of(to), strip.memory, width, width,
                           static_cast<std::size_t>(strip.block.rows), cudaMemcpyDeviceToDevice, rank_.stream),
         "cudaMemcpy2DAsync");
  }
  finish("exchange");
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
  cuda(staging.reserve(staged), "cudaMalloc");
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
      refuse("exchange: rank " + std::to_string(rank()) + " sends itself other blocks than it receives from itself");
    }
    if (sent->rows == 0 || sent->columns == 0) return;
    cuda(cudaMemcpy2DAsync(place_of(call.to, *received), pitch_of(call.to), place_of(call.from, *sent),
                           pitch_of(call.from), width_of(call.from, *sent), static_cast<std::size_t>(sent->rows),
                           cudaMemcpyDeviceToDevice, rank_.stream),
         "cudaMemcpy2DAsync");
  });
}

std::vector<std::int64_t> NcclCommunicator::part_rows(std::int64_t own, std::int64_t rows, CollectiveKind kind) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), rows - own);
  counts[static_cast<std::size_t>(rank())] = own;
  if (size() > 2) {
    auto* gathered = reinterpret_cast<std::int64_t*>(counts_.data());
    cuda(cudaMemcpyAsync(gathered + rank(), &own, sizeof own, cudaMemcpyHostToDevice, rank_.stream), "cudaMemcpyAsync");
    settle(ncclAllGather(gathered + rank(), gathered, 1, ncclInt64, communicator_, rank_.stream), "ncclAllGather");
    finish("ncclAllGather of the rows of all parts");
    // Only now: a copy to the host waits for the stream without looking for abort().
    cuda(cudaMemcpyAsync(counts.data(), gathered, counts.size() * sizeof own, cudaMemcpyDeviceToHost, rank_.stream),
         "cudaMemcpyAsync");
    finish("cudaMemcpyAsync of the rows of all parts");
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  if (sum == rows && own <= rows) return counts;
  refuse(std::string(name_of(kind)) + ": the parts of all ranks have " + std::to_string(std::max(sum, own)) +
         " rows, the whole of rank " + std::to_string(rank()) + " has " + std::to_string(rows));
}

void NcclCommunicator::begin(const CollectiveCall& call) {
  look_for_abort(name_of(call.kind));
  const std::string wrong = side_violation(call, rank(), size());
  if (!wrong.empty()) refuse(wrong);
  cuda(cudaSetDevice(device_), "cudaSetDevice");
}

void NcclCommunicator::finish(std::string_view call) {
  cudaError_t state = cudaStreamQuery(rank_.stream);
  for (; state == cudaErrorNotReady; state = cudaStreamQuery(rank_.stream)) {
    look_for_abort(call);
    ncclResult_t error = ncclSuccess;
    settle(ncclCommGetAsyncError(communicator_, &error), "ncclCommGetAsyncError");
    settle(error, call);
    std::this_thread::yield();
  }
  cuda(state, call);
  look_for_abort(call);
}

void NcclCommunicator::GroupResult::add(ncclResult_t next, std::string_view next_call) {
  if (result != ncclSuccess || next == ncclSuccess || next == ncclInProgress) return;
  result = next;
  call = next_call;
}

template <class Issue>
void NcclCommunicator::grouped(std::string_view call, const Issue& issue) {
  settle(ncclGroupStart(), "ncclGroupStart");
  GroupResult group;
  issue(group);
  const ncclResult_t ended = ncclGroupEnd();
  settle(group.result, group.call);
  settle(ended, call);
}

void NcclCommunicator::settle(ncclResult_t result, std::string_view call) {
  while (result == ncclInProgress) {
    look_for_abort(call);
    std::this_thread::yield();
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return;
  fail(call, std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(communicator_));
}

void NcclCommunicator::cuda(cudaError_t result, std::string_view call) {
  if (result != cudaSuccess) fail(call, cudaGetErrorString(result));
}

void NcclCommunicator::look_for_abort(std::string_view call) {
  if (!rank_.abort->given()) return;
  end();
  throw CommunicatorAborted(at_rank(call) + "the group was aborted: " + rank_.abort->why());
}

std::string NcclCommunicator::at_rank(std::string_view call) const {
  return std::string(call) + " on rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ": ";
}

void NcclCommunicator::fail(std::string_view call, const std::string& text) {
  const std::string error = at_rank(call) + text;
  rank_.abort->give(error);
  end();
  throw std::runtime_error(error);
}

void NcclCommunicator::refuse(const std::string& wrong) {
  rank_.abort->give(wrong);
  end();
  throw std::logic_error(wrong);
}

void NcclCommunicator::end() {
  if (communicator_ == nullptr) return;
  static_cast<void>(ncclCommAbort(communicator_));  // what failed is told by whoever ends it
  communicator_ = nullptr;
}

}  // namespace maestro
