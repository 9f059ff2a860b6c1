// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/streams.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

#include "tests/support/fake_cuda/host_cuda.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace maestro::fake_cuda {

namespace {

constexpr int poison = 0xFF;
constexpr std::size_t most_poison = std::size_t{1} << 20;  // at each end of a block: larger blocks are workspaces
constexpr std::size_t alignment = DeviceArena::alignment;
constexpr std::byte guard{0xA5};
constexpr std::size_t guard_bytes = 128;
// Virtual memory: twice the largest use at a time, since blocks leave gaps.
constexpr std::size_t arena_bytes = 2 * total_memory;
constexpr std::size_t arena_lap = total_memory / 4;

std::size_t with_guard(std::size_t bytes) {
  return (bytes + guard_bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

Runtime& runtime() {
  static Runtime one;
  return one;
}

void Runtime::push(cudaStream_t stream, Step step) {
  CUstream_st* to = at(stream);
  if (to->capture != nullptr) {
    to->capture->steps.push_back(std::move(step));
  } else {
    to->steps.push_back(std::move(step));
    ++queued;
  }
}

void Runtime::replay(const CUgraphExec_st& graph, cudaStream_t stream) {
  CUstream_st* to = at(stream);
  to->steps.insert(to->steps.end(), graph.steps.begin(), graph.steps.end());
  ++queued;
}

bool Runtime::disturbs_capture() {
  bool disturbed = false;
  for (CUstream_st* stream : streams) {
    if (stream->capture == nullptr || stream->capturer != std::this_thread::get_id()) continue;
    stream->capture_failed = true;
    disturbed = true;
  }
  return disturbed;
}

bool Runtime::run_one(CUstream_st* stream) {
  if (failure != cudaSuccess || stream->steps.empty()) return true;
  try {
    const Step step = stream->steps.front();
    if (!step()) return false;
    stream->steps.pop_front();
  } catch (const KernelError& error) {
    fail(cudaErrorLaunchFailure, error.what());
  }
  return true;
}

void Runtime::let_others_queue() {
  mutex.unlock();
  std::this_thread::yield();
  mutex.lock();
}

void Runtime::run_all(CUstream_st* stream) {
  while (failure == cudaSuccess && !stream->steps.empty()) {
    if (!run_one(stream)) let_others_queue();
  }
}

void Runtime::run_until(const std::shared_ptr<Recording>& recording) {
  while (failure == cudaSuccess && !recording->done) {
    if (!run_one(recording->stream)) let_others_queue();
  }
}

void Runtime::run_device() {
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  run_all(&default_stream);
  const auto busy = [&] {
    return std::ranges::find_if(
        streams, [&](const CUstream_st* stream) { return stream->device == device && !stream->steps.empty(); });
  };
  // A stream may be destroyed while others queue, so each search starts again.
  for (auto found = busy(); failure == cudaSuccess && found != streams.end(); found = busy()) {
    if (!run_one(*found)) let_others_queue();
  }
}

void Runtime::fail(cudaError_t error, const std::string& text) {
  if (failure != cudaSuccess) return;
  failure = error;
  failure_text = text;
}

DeviceArena& Runtime::arena() {
  if (!arena_) arena_.emplace(arena_bytes, arena_lap);
  return *arena_;
}

void* Runtime::allocate(std::size_t bytes, cudaMemoryType type) {
  const bool on_device = type == cudaMemoryTypeDevice;
  const std::size_t rounded = with_guard(bytes);
  void* address = on_device ? arena().take(rounded) : std::aligned_alloc(alignment, rounded);
  if (address == nullptr) return nullptr;
  std::byte* begin = static_cast<std::byte*>(address);
  std::byte* end = begin + bytes;
  std::memset(begin, poison, std::min(bytes, most_poison));
  if (bytes > most_poison)
    std::memset(std::max(end - most_poison, begin + most_poison), poison, std::min(bytes - most_poison, most_poison));
  std::fill_n(end, guard_bytes, guard);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(end, rounded - bytes);
#endif
  memory[static_cast<const std::byte*>(address)] = {bytes, type, on_device ? std::malloc(1) : nullptr};
  return address;
}

void Runtime::release(void* address) {
  const auto found = memory.find(static_cast<const std::byte*>(address));
  if (found == memory.end()) std::abort();  // not allocated here, or freed twice
  const auto [bytes, type, leak_mark] = found->second;
  const std::byte* end = found->first + bytes;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(end, guard_bytes);
#endif
  if (std::any_of(end, end + guard_bytes, [](std::byte value) { return value != guard; })) {
    std::fprintf(stderr, "wrote past an allocation of %zu bytes\n", bytes);
    std::abort();
  }
  memory.erase(found);
  if (type == cudaMemoryTypeDevice) {
    arena().give_back(static_cast<std::byte*>(address), with_guard(bytes));
    std::free(leak_mark);
  } else {
    std::free(address);
  }
}

std::optional<cudaMemoryType> Runtime::type_of(const void* address, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(address);
  const auto within = [&](const std::byte* begin, std::size_t size) {
    return begin <= first && first + bytes <= begin + size;
  };
  const auto after = memory.upper_bound(first);
  if (after != memory.begin()) {
    const auto& [begin, allocation] = *std::prev(after);
    if (within(begin, allocation.bytes)) return allocation.type;
  }
  const bool imported =
      std::ranges::any_of(imports, [&](const Import& each) { return within(each.memory, each.bytes); });
  return imported ? std::optional(cudaMemoryTypeDevice) : std::nullopt;
}

void enqueue_kernel(KernelCall call, const void* function, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  const auto asked = runtime().shared_bytes.find(function);
  const bool has_asked = asked != runtime().shared_bytes.end();
  const std::size_t granted = has_asked ? asked->second : shared_bytes_without_asking;
  call.most_shared_bytes = has_asked ? shared_bytes_per_block : shared_bytes_without_asking;
  const std::size_t threads = std::size_t{call.block.x} * call.block.y * call.block.z;
  const std::size_t blocks = std::size_t{call.grid.x} * call.grid.y * call.grid.z;
  if (threads == 0 || threads > 1024 || blocks == 0 || call.shared_bytes > granted) {
    return runtime().fail(cudaErrorInvalidConfiguration,
                          "kernel " + std::string(call.name) + ": invalid grid, block or shared memory");
  }
  runtime().push(stream, [call = std::move(call)] {
    run_kernel(call);
    return true;
  });
}

void enqueue_step(std::function<void()> step, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  runtime().push(stream, [step = std::move(step)] {
    step();
    return true;
  });
}

void hold_stream(cudaStream_t stream, std::shared_ptr<const std::atomic<bool>> open) {
  const std::lock_guard lock(runtime().mutex);
  runtime().push(stream, [open = std::move(open)] { return open->load(); });
}

std::size_t pending_steps(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  return runtime().at(stream)->steps.size();
}

std::size_t allocated_bytes() {
  const std::lock_guard lock(runtime().mutex);
  std::size_t sum = 0;
  for (const auto& [address, allocation] : runtime().memory) sum += allocation.bytes;
  return sum;
}

std::set<int> started_devices() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().started;
}

void break_device(const std::string& text) {
  const std::lock_guard lock(runtime().mutex);
  runtime().fail(cudaErrorLaunchFailure, text);
}

void reset_device() {
  const std::lock_guard lock(runtime().mutex);
  runtime().failure = cudaSuccess;
  runtime().failure_text.clear();
  runtime().started.clear();
  runtime().default_stream.steps.clear();
  for (CUstream_st* stream : runtime().streams) stream->steps.clear();
}

}  // namespace maestro::fake_cuda
