// SPDX-License-Identifier: Apache-2.0
// Interface of tests to the fake of the CUDA runtime (host_cuda_runtime.cpp), beyond CUDA's own calls.
//
//   HR-1  a stream does its work in order and only later: a step per query of the stream or of an event on it, all of
//         it when the host waits (cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize), frees device
//         memory or destroys the stream;
//   HR-2  a copy reads its source when its step runs, also from host memory;
//   HR-3  memory is filled with NaN when it is given out; cudaFreeAsync returns it when its step runs; a program ends
//         that has written past an allocation, at the latest when it is freed (AddressSanitizer sees reads, too);
//   HR-4  the first failure of a kernel is sticky: every later call returns it, and cudaGetErrorString() describes it,
//         until reset_device();
//   HR-5  another process over the fake reaches device memory by cudaIpcOpenMemHandle() while its owner lives; its
//         own memory a process cannot open.
//   HR-6  the thread that captures a stream may meanwhile take and give back no memory and query no event: such a
//         call is refused, and the capture fails.
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

/// Puts the kernel on the stream; refuses (as a launch does, in cudaGetLastError()) limits KD-4. `function` is the
/// kernel, whose shared memory cudaFuncSetAttribute() has raised.
void enqueue_kernel(KernelCall call, const void* function, cudaStream_t stream);

/// Puts a step of the test's own on the stream, such as the fake of a library's call.
void enqueue_step(std::function<void()> step, cudaStream_t stream);

/// Work queued on the stream from now on waits until `open` is true.
void hold_stream(cudaStream_t stream, std::shared_ptr<const std::atomic<bool>> open);

[[nodiscard]] std::size_t pending_steps(cudaStream_t stream);
/// Device and pinned bytes given out and not returned.
[[nodiscard]] std::size_t allocated_bytes();
/// Number of calls in which a host waits for a device, or may: synchronisations, blocking copies, allocation and
/// release of memory.
[[nodiscard]] std::size_t waits();
/// Number of calls that put work on a stream: a graph counts once.
[[nodiscard]] std::size_t queued();
/// Devices started by the process: by cudaSetDevice, or by a call that works on the current device, which is device 0
/// in a thread that has set none.
[[nodiscard]] std::set<int> started_devices();
/// From now on every call fails with `text`, as after a kernel's failure.
void break_device(const std::string& text);
/// Forgets failures, all pending work, and that devices were started; memory and streams stay.
void reset_device();

}  // namespace maestro::fake_cuda
