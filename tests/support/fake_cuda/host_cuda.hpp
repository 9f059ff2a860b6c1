// SPDX-License-Identifier: Apache-2.0
// Test interface to the fake CUDA runtime (host_cuda_runtime.cpp), in addition to CUDA's calls.
//
//   HR-1  a stream runs its work in order and only later: one step per query of the stream or of an event on it, all
//         work when the host waits (cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize), frees device
//         memory or destroys the stream;
//   HR-2  a copy reads its source when its step runs, even from host memory;
//   HR-3  memory is filled with NaN when it is allocated; cudaFreeAsync frees it when its step runs; a program that has
//         written past an allocation ends, at the latest when the memory is freed (AddressSanitizer sees reads, too);
//   HR-4  the first failure of a kernel is sticky: every later call returns it, and cudaGetErrorString() describes it,
//         until reset_device();
//   HR-5  another process on the fake reaches device memory by cudaIpcOpenMemHandle() while its owner lives; a
//         process cannot open its memory itself.
//   HR-6  a thread that captures a stream must not allocate or free memory or query an event: such a call is refused,
//         and the capture fails.
// All calls are thread-safe: a single lock is held while a step runs, so host functions on a stream must not wait for
// another thread that makes CUDA calls.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "tests/support/fake_cuda/kernel_run.hpp"

namespace maestro::fake_cuda {

inline constexpr int device_count = 4;
inline constexpr int multiprocessors = 4;

/// Queues the kernel on the stream. Refuses violations of KD-4 like a launch, in cudaGetLastError(). `function` is the
/// kernel whose shared memory cudaFuncSetAttribute() has raised.
void enqueue_kernel(KernelCall call, const void* function, cudaStream_t stream);

/// Queues a test's step on the stream, such as the fake of a library call.
void enqueue_step(std::function<void()> step, cudaStream_t stream);

/// Makes work queued on the stream from now on wait until `open` is true.
void hold_stream(cudaStream_t stream, std::shared_ptr<const std::atomic<bool>> open);

[[nodiscard]] std::size_t pending_steps(cudaStream_t stream);
/// Returns the device and pinned bytes that are allocated and not freed.
[[nodiscard]] std::size_t allocated_bytes();
/// Returns the number of calls that make a host wait for a device, or may: synchronisations, blocking copies,
/// allocation of device memory, release of device or pinned memory.
[[nodiscard]] std::size_t waits();
/// Returns the number of calls that allocated pinned memory, which waits for no device.
[[nodiscard]] std::size_t pinned_allocations();
/// Returns the number of calls that queued work on a stream: a graph counts once.
[[nodiscard]] std::size_t queued();
/// Returns the devices that the process has started: by cudaSetDevice, or by a call that uses the current device, which
/// is device 0 in a thread that has not set one.
[[nodiscard]] std::set<int> started_devices();
/// Makes every call from now on fail with `text`, as after a kernel's failure.
void break_device(const std::string& text);
/// Forgets failures, all pending work, and which devices were started; memory and streams remain.
void reset_device();

}  // namespace maestro::fake_cuda
