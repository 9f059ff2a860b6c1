// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on the CPU: blocks one after another, each thread of a block a fiber.
//
// Invariants that a kernel has to keep, each an error that names the kernel, the block and the thread (KernelError):
//   KD-1  every thread of a block arrives at every block barrier, all at the same place of the source;
//   KD-2  all lanes of a warp operation's mask arrive at it with that mask; the caller and the lane read are in it;
//   KD-3  shared variables are used within their bytes, dynamic shared memory within the size of the launch;
//   KD-4  grid and block are within the device's limits; shared memory, static and dynamic together, within the limit
//         set for the function.
// Shared memory is filled with NaN before every block, so that nothing is read from the block before. `Order::reverse`
// runs blocks and threads backwards: results that differ from those of `forward` depend on the order of threads.
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
  std::function<void()> body;                              ///< the kernel with its arguments, run by each thread
  std::size_t most_shared_bytes = shared_bytes_per_block;  ///< of a block, static and dynamic together
};

/// Runs all blocks on the calling host thread; several host threads may run kernels at once.
void run_kernel(const KernelCall& call);

/// For all kernels that run from now on.
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

/// Contribution of a lane to a warp operation.
struct LaneValue {
  static constexpr std::size_t most_bytes = 64;
  alignas(16) std::array<std::byte, most_bytes> bytes;
};
/// Waits for all lanes of `mask`; then the values of all of them, by lane. Valid until this lane's next operation.
const LaneValue* warp_exchange(unsigned mask, const LaneValue& value);
[[nodiscard]] unsigned lane_number();
/// Ends the kernel with a KernelError that names the place and `what`.
[[noreturn]] void kernel_fault(const char* what);

/// The dynamic shared memory of the block.
[[nodiscard]] std::byte* dynamic_shared();
/// The block's shared variable that `key` stands for; 16-byte aligned.
[[nodiscard]] std::byte* shared_variable(const void* key, std::size_t bytes);

}  // namespace maestro::fake_cuda
