// SPDX-License-Identifier: Apache-2.0
// A fake of NCCL on the fake CUDA runtime, linked in its place; also between processes on the same machine.
//
// It keeps these guarantees of NCCL: work runs in stream order, after all ranks have arrived at it; a communicator
// never blocks (ncclInProgress until all ranks have joined); grouped calls start at ncclGroupEnd; sends and receives
// between two ranks match in order; an aborted communicator's work ends at once. Ranks communicate through files in a
// folder named by the group's id; the last rank removes it.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace {

namespace fs = std::filesystem;
using maestro::bfloat16;
using maestro::fake_cuda::runtime;
using Bytes = std::vector<std::byte>;

struct World {
  fs::path folder;
  int size = 0;
  int rank = 0;
  std::atomic<bool> aborted = false;
  // Letters are numbered when a call is issued: calls in a group run concurrently.
  std::map<int, std::uint64_t> sent;      // by receiver; used by the rank's thread
  std::map<int, std::uint64_t> received;  // by sender

  [[nodiscard]] fs::path letter(int from, int to, std::uint64_t number) const {
    return folder / (std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number));
  }
  void send(int peer, std::uint64_t number, const void* data, std::size_t bytes) const {
    const fs::path to = letter(rank, peer, number);
    const fs::path draft = to.string() + ".draft";
    std::ofstream(draft, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    std::error_code gone;  // the folder, if all ranks have ended
    fs::rename(draft, to, gone);
  }
  bool receive(int peer, std::uint64_t number, void* data, std::size_t bytes) const {
    const fs::path from = letter(peer, rank, number);
    std::ifstream file(from, std::ios::binary);
    if (!file) return false;
    if (fs::file_size(from) != bytes) std::abort();  // NCCL would corrupt data or hang
    file.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
    fs::remove(from);
    return true;
  }
  void note(const std::string& what) const { std::ofstream(folder / (what + std::to_string(rank))).put('.'); }
  [[nodiscard]] bool all_noted(const std::string& what) const {
    for (int peer = 0; peer < size; ++peer) {
      if (!fs::exists(folder / (what + std::to_string(peer)))) return false;
    }
    return true;
  }
  void leave() const {
    note("left");
    std::error_code removed_already;
    if (all_noted("left")) fs::remove_all(folder, removed_already);
  }
};
using WorldPointer = std::shared_ptr<World>;
/// A step of a stream; returns false while it has to wait for a peer.
using Step = std::function<bool()>;

struct PendingCall {
  cudaStream_t stream;
  Step step;
};
thread_local int group_depth = 0;
thread_local std::vector<PendingCall> group_calls;

std::size_t size_of_type(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclInt64 ? 8 : type == ncclBfloat16 ? 2 : 4;
}

}  // namespace

struct ncclComm {
  WorldPointer world;
  bool finalizing = false;
};

namespace {

ncclResult_t push(cudaStream_t stream, Step step) {
  const maestro::fake_cuda::Lock lock(runtime().mutex);
  runtime().push(stream, std::move(step));
  return ncclInProgress;  // NCCL's thread has yet to start it
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, Step step) {
  Step unless_aborted = [world = comm->world, step = std::move(step)] { return world->aborted || step(); };
  if (group_depth == 0) return push(stream, std::move(unless_aborted));
  group_calls.push_back({stream, std::move(unless_aborted)});
  return ncclSuccess;
}

/// Combines the ranks' data for a collective in rank order, after all ranks have arrived.
class Hearing {
 public:
  Hearing(WorldPointer world, std::size_t bytes) : world_(std::move(world)), heard_(bytes * count()), bytes_(bytes) {
    for (int peer = 0; peer < world_->size; ++peer) {
      to_.push_back(world_->sent[peer]++);
      from_.push_back(world_->received[peer]++);
    }
  }
  /// Returns true if all ranks have arrived. `said(peer)` is this rank's data, read once.
  bool hear(const std::function<const void*(int)>& said) {
    for (; said_ < count(); ++said_) {
      const int peer = static_cast<int>(said_);
      world_->send(peer, to_[said_], said(peer), bytes_);
    }
    while (heard_ranks_ < count() &&
           world_->receive(static_cast<int>(heard_ranks_), from_[heard_ranks_], of(heard_ranks_), bytes_)) {
      ++heard_ranks_;
    }
    return heard_ranks_ == count();
  }
  [[nodiscard]] std::byte* of(std::size_t peer) { return heard_.data() + peer * bytes_; }
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(world_->size); }

 private:
  WorldPointer world_;
  Bytes heard_;
  std::size_t bytes_;
  std::vector<std::uint64_t> to_;  // letter numbers by rank
  std::vector<std::uint64_t> from_;
  std::size_t said_ = 0;
  std::size_t heard_ranks_ = 0;
};

template <class T>
void combine(Hearing& heard, void* result, std::size_t elements, ncclRedOp_t operation) {
  for (std::size_t i = 0; i < elements; ++i) {
    float total = 0;
    for (std::size_t peer = 0; peer < heard.count(); ++peer) {
      T value;
      std::memcpy(&value, heard.of(peer) + i * sizeof value, sizeof value);
      const auto number = static_cast<float>(value);
      total = peer == 0 ? number : operation == ncclSum ? total + number : std::max(total, number);
    }
    static_cast<T*>(result)[i] = static_cast<T>(total);
  }
}

void combine(Hearing& heard, void* result, std::size_t elements, ncclDataType_t type, ncclRedOp_t operation) {
  if (type == ncclFloat32) return combine<float>(heard, result, elements, operation);
  if (type == ncclBfloat16) return combine<bfloat16>(heard, result, elements, operation);
  std::abort();  // other types are never added
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the fake";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string folder = (fs::temp_directory_path() / "maestro-nccl-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr || folder.size() >= sizeof id->internal) return ncclSystemError;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, folder.data(), folder.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const fs::path folder(id.internal);
  if (config->blocking != 0 || !fs::exists(folder)) return ncclInvalidArgument;
  auto world = std::make_shared<World>();
  world->folder = folder;
  world->size = size;
  world->rank = rank;
  world->note("joined");
  *comm = new ncclComm{world};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const bool here = comm->finalizing ? comm->world->all_noted("finalized") : comm->world->all_noted("joined");
  *error = here ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalizing = true;
  comm->world->note("finalized");
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->world->leave();
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (group_depth > 0) std::abort();  // the group must be closed first
  comm->world->aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclGroupStart() {
  return ++group_depth, ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  // All calls in a group run concurrently, as in NCCL.
  auto calls = std::make_shared<std::vector<PendingCall>>(std::move(group_calls));
  group_calls.clear();
  if (calls->empty()) return ncclSuccess;
  return push(calls->front().stream, [calls] {
    std::erase_if(*calls, [](PendingCall& call) { return call.step(); });
    return calls->empty();
  });
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::uint64_t number = comm->world->sent[peer]++;
  return start(comm, stream, [world = comm->world, data, peer, number, bytes = count * size_of_type(type)] {
    world->send(peer, number, data, bytes);
    return true;
  });
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const std::uint64_t number = comm->world->received[peer]++;
  return start(comm, stream, [world = comm->world, data, peer, number, bytes = count * size_of_type(type)] {
    return world->receive(peer, number, data, bytes);
  });
}
ncclResult_t ncclAllReduce(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  auto heard = std::make_shared<Hearing>(comm->world, count * size_of_type(type));
  return start(comm, stream, [=] {
    if (!heard->hear([=](int) { return data; })) return false;
    combine(*heard, result, count, type, operation);
    return true;
  });
}
ncclResult_t ncclAllGather(const void* data, void* result, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  auto heard = std::make_shared<Hearing>(comm->world, bytes);
  return start(comm, stream, [=] {
    if (!heard->hear([=](int) { return data; })) return false;
    std::memcpy(result, heard->of(0), bytes * heard->count());
    return true;
  });
}
ncclResult_t ncclReduceScatter(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  auto heard = std::make_shared<Hearing>(comm->world, bytes);
  return start(comm, stream, [=] {
    const auto part = [=](int peer) { return static_cast<const std::byte*>(data) + static_cast<size_t>(peer) * bytes; };
    if (!heard->hear(part)) return false;
    combine(*heard, result, count, type, operation);
    return true;
  });
}
ncclResult_t ncclReduce(const void* data, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  auto heard = std::make_shared<Hearing>(comm->world, count * size_of_type(type));
  return start(comm, stream, [=] {
    if (!heard->hear([=](int) { return data; })) return false;
    if (comm->world->rank == root) combine(*heard, result, count, type, operation);
    return true;
  });
}
ncclResult_t ncclBroadcast(const void* data, void* result, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of_type(type);
  auto heard = std::make_shared<Hearing>(comm->world, bytes);
  return start(comm, stream, [=] {
    if (!heard->hear([=](int) { return data; })) return false;
    std::memcpy(result, heard->of(static_cast<size_t>(root)), bytes);
    return true;
  });
}

}  // extern "C"
