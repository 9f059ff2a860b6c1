// A double of the calls of CUDA and NCCL that NcclCommunicator makes, over host memory and threads: it checks on any
// machine which calls are made, in what order and of which memory; not NCCL itself. Linked in place of both libraries.
//
// What it keeps of them: a stream does its work in order and only later, here when it is asked; a communicator never
// blocks (ncclInProgress until all ranks have come); grouped calls start at ncclGroupEnd; sends and receives of a pair
// meet in order; an aborted communicator is gone.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

/// One step of a stream; false while it has to wait for a peer.
using Step = std::function<bool()>;
struct CUstream_st {
  std::deque<Step> steps;
};

namespace {

using Bytes = std::vector<std::byte>;

/// What the ranks of one id share.
struct World {
  std::mutex mutex;
  int joined = 0;
  int finalized = 0;
  std::map<std::array<int, 2>, std::deque<Bytes>> mail;  // by sender and receiver
};

std::mutex worlds_mutex;
std::map<std::uint32_t, std::shared_ptr<World>> worlds;
std::uint32_t next_world = 1;

struct PendingCall {
  cudaStream_t stream;
  Step step;
};
thread_local int group_depth = 0;
thread_local std::vector<PendingCall> group_calls;
thread_local int current_device = 0;

std::size_t size_of_type(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclInt64 ? 8 : type == ncclBfloat16 ? 2 : 4;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int size = 0;
  int rank = 0;
  bool finalizing = false;

  void send(int peer, const void* data, std::size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(data);
    const std::lock_guard lock(world->mutex);
    world->mail[{rank, peer}].emplace_back(first, first + bytes);
  }
  bool receive(int peer, void* data, std::size_t bytes) const {
    const std::lock_guard lock(world->mutex);
    auto& box = world->mail[{peer, rank}];
    if (box.empty()) return false;
    if (box.front().size() != bytes) std::abort();  // NCCL would mix data or hang
    std::memcpy(data, box.front().data(), bytes);
    box.pop_front();
    return true;
  }
};

namespace {

ncclResult_t start(cudaStream_t stream, Step step) {
  group_calls.push_back({stream, std::move(step)});
  if (group_depth > 0) return ncclSuccess;
  for (PendingCall& call : group_calls) call.stream->steps.push_back(std::move(call.step));
  group_calls.clear();
  return ncclInProgress;
}

/// Sends to all, then receives from one after the other and hands what came to `take`(peer, data).
template <class Take>
Step all_to_all(ncclComm_t comm, std::function<Bytes(int)> bytes_for, std::size_t bytes, Take take) {
  auto next = std::make_shared<int>(-1);
  return [=] {
    if (*next < 0) {
      for (int peer = 0; peer < comm->size; ++peer) {
        const Bytes out = bytes_for(peer);
        comm->send(peer, out.data(), out.size());
      }
      *next = 0;
    }
    Bytes in(bytes);
    for (; *next < comm->size; ++*next) {
      if (!comm->receive(*next, in.data(), bytes)) return false;
      take(*next, in.data());
    }
    return true;
  };
}

Bytes copy_of(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}

/// Of f32: the tests use no other type.
void combine(void* into, const std::byte* values, std::size_t count, ncclRedOp_t operation, bool first) {
  auto* target = static_cast<float*>(into);
  for (std::size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    target[i] = first ? value : operation == ncclSum ? target[i] + value : std::max(target[i], value);
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return *count = 4, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  return *device = current_device, cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return current_device = device, cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the double";
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return *memory = std::malloc(bytes), cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  return std::free(memory), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new CUstream_st, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return delete stream, cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  stream->steps.push_back([=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->steps.empty()) return cudaSuccess;
  if (stream->steps.front()()) stream->steps.pop_front();
  return cudaErrorNotReady;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the double";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(worlds_mutex);
  worlds[next_world] = std::make_shared<World>();
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &next_world, sizeof next_world);
  ++next_world;
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  std::uint32_t world = 0;
  std::memcpy(&world, id.internal, sizeof world);
  const std::lock_guard lock(worlds_mutex);
  if (config->blocking != 0 || !worlds.contains(world)) return ncclInvalidArgument;
  *comm = new ncclComm{worlds[world], size, rank};
  const std::lock_guard world_lock((*comm)->world->mutex);
  ++(*comm)->world->joined;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(comm->world->mutex);
  const int here = comm->finalizing ? comm->world->finalized : comm->world->joined;
  *error = here < comm->size ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(comm->world->mutex);
  comm->finalizing = true;
  ++comm->world->finalized;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (group_depth > 0) std::abort();  // the group would have to be closed first
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  return ++group_depth, ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  // All sends of a group leave before any receive waits, as in NCCL, where they go at once.
  auto calls = std::make_shared<std::vector<PendingCall>>(std::move(group_calls));
  group_calls.clear();
  if (calls->empty()) return ncclSuccess;
  calls->front().stream->steps.push_back([calls] {
    std::erase_if(*calls, [](PendingCall& call) { return call.step(); });
    return calls->empty();
  });
  return ncclInProgress;
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(stream, [=] { return comm->send(peer, data, count * size_of_type(type)), true; });
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return start(stream, [=] { return comm->receive(peer, data, count * size_of_type(type)); });
}
ncclResult_t ncclAllReduce(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  return start(stream, all_to_all(
                           comm, [=](int) { return copy_of(data, bytes); }, bytes,
                           [=](int peer, const std::byte* in) { combine(result, in, count, operation, peer == 0); }));
}
ncclResult_t ncclAllGather(const void* data, void* result, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  return start(stream, all_to_all(
                           comm, [=](int) { return copy_of(data, bytes); }, bytes,
                           [=](int peer, const std::byte* in) {
                             std::memcpy(static_cast<std::byte*>(result) + static_cast<size_t>(peer) * bytes, in,
                                         bytes);
                           }));
}
ncclResult_t ncclReduceScatter(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  return start(stream,
               all_to_all(
                   comm,
                   [=](int peer) {
                     return copy_of(static_cast<const std::byte*>(data) + static_cast<size_t>(peer) * bytes, bytes);
                   },
                   bytes, [=](int peer, const std::byte* in) { combine(result, in, count, operation, peer == 0); }));
}
ncclResult_t ncclBroadcast(const void* data, void* result, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  auto sent = std::make_shared<bool>(false);
  return start(stream, [=] {
    for (int peer = 0; comm->rank == root && !*sent && peer < comm->size; ++peer) comm->send(peer, data, bytes);
    *sent = true;
    return comm->receive(root, result, bytes);
  });
}
ncclResult_t ncclReduce(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  auto next = std::make_shared<int>(-1);
  return start(stream, [=] {
    if (*next < 0) comm->send(root, copy_of(data, bytes).data(), bytes);
    if (comm->rank != root) return true;
    Bytes in(bytes);
    for (*next = std::max(*next, 0); *next < comm->size; ++*next) {
      if (!comm->receive(*next, in.data(), bytes)) return false;
      combine(result, in.data(), count, operation, *next == 0);
    }
    return true;
  });
}

}  // extern "C"
