// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/dry_space.hpp"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

std::byte* DrySpace::allocate(std::size_t bytes) {
  void* const block =
      mmap(nullptr, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) {
    throw JobError("cannot map " + std::to_string(bytes) + " bytes for a pass of which nothing is computed",
                   ErrorCode::unavailable);
  }
  held_ += bytes;
  return static_cast<std::byte*>(block);
}

void DrySpace::release(std::byte* block, std::size_t bytes) noexcept {
  munmap(block, bytes == 0 ? 1 : bytes);
  held_ -= bytes;
}

void DrySpace::read(std::byte* host_to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host_to, from, bytes);
}

void DrySpace::write(std::byte* to, const std::byte* host_from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, host_from, bytes);
}

void DrySpace::zero(std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

}  // namespace maestro
