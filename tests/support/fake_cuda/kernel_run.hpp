// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on the CPU: blocks one after another; each thread of a block is a fiber.
//
// Invariants for kernels; a violation is an error that names the kernel, the block and the thread (KernelError):
//   KD-1  every thread of a block arrives at every block barrier, all at the same place in the source;
//   KD-2  all lanes of a warp operation's mask arrive at it with that mask; the mask has the caller and the lane read;
//   KD-3  accesses stay within a shared variable's bytes, and within the launch's size of dynamic shared memory;
//   KD-4  grid and block are within the device's limits; static and dynamic shared memory together are within the
//         function's limit.
// Shared memory is filled with NaN before every block, so that no block reads its predecessor's data. `Order::reverse`
// runs blocks and threads backwards: a result that differs from `forward` depends on the order of threads.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace maestro::fake_cuda {

class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t shared_bytes_per_block = 227 * 1024;  // compute capability 9.0
inline constexpr std::size_t shared_bytes_without_asking = 48 * 1024;

struct KernelCall {
  const char* name = "";
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  std::function<void()> body;                              ///< kernel with its arguments, run by each thread
  std::size_t most_shared_bytes = shared_bytes_per_block;  ///< limit for a block's static and dynamic memory together
};

/// Runs all blocks on the calling host thread; several host threads may run kernels at once.
void run_kernel(const KernelCall& call);

/// Order of blocks and threads in all kernels that run from now on.
enum class Order : std::uint8_t { forward, reverse };
void set_order(Order order);

inline constexpr unsigned warp_lanes = 32;

// ---- for device_language.hpp: called by the thread that runs ----

struct ThreadPlace {
  uint3 thread{};
  uint3 block{};
  dim3 block_size;
  dim3 grid_size;
};
[[nodiscard]] const ThreadPlace& place();

void block_barrier(const char* file, int line);

/// A lane's contribution to a warp operation.
struct LaneValue {
  static constexpr std::size_t most_bytes = 64;
  alignas(16) std::array<std::byte, most_bytes> bytes;
};
/// Waits for all lanes of `mask`. Returns their values by lane, which are valid until this lane's next operation.
const LaneValue* warp_exchange(unsigned mask, const LaneValue& value);
[[nodiscard]] unsigned lane_number();
/// Ends the kernel with a KernelError that names the place and `what`.
[[noreturn]] void kernel_fault(const char* what);

[[nodiscard]] std::byte* dynamic_shared();
/// Returns the block's shared variable for `key`; 16-byte aligned.
[[nodiscard]] std::byte* shared_variable(const void* key, std::size_t bytes);

}  // namespace maestro::fake_cuda
