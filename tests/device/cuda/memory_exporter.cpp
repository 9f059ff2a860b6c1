// SPDX-License-Identifier: Apache-2.0
// A process that exports two blocks of its device memory. Prints a line of hex digits per block, the bytes needed to
// import it, or a line with the reason for a failure; then answers every input line with the first block's bytes in
// hex. argv: size of the blocks, and value of the first block's bytes; the second block's value is larger by 1.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "runtime/device/cuda/memory_sharing.hpp"
#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::ostringstream text;
  text << std::hex << std::setfill('0');
  for (const std::byte value : bytes) text << std::setw(2) << std::to_integer<int>(value);
  return text.str();
}

int serve(std::size_t bytes, int value) {
  const DeviceOptions options{.name = "cuda:0", .log = {}};
  DeviceParts parts(0, GreenContextCalls{});
  Poller poller;
  const CudaDevice device(options, poller, parts, any_table);
  const MemorySharing sharing;
  std::vector<std::byte> host(bytes);
  const auto show = [&](const SpaceMemory& block, int filled_with) {
    std::fill(host.begin(), host.end(), static_cast<std::byte>(filled_with));
    device.memory().write(block.data(), host.data(), bytes);
    const std::vector<std::byte> exported = sharing.export_block(device, block.data());
    std::cout << (exported.empty() ? "this system does not share device memory" : hex(exported)) << std::endl;
  };
  const SpaceMemory block(device.memory(), bytes);
  const SpaceMemory neighbour(device.memory(), bytes);
  show(block, value);
  show(neighbour, value + 1);
  for (std::string line; std::getline(std::cin, line);) {
    device.memory().read(host.data(), block.data(), bytes);
    std::cout << hex(host) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace maestro::cuda

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (const std::string missing = maestro::cuda::missing_device(); !missing.empty()) {
    std::cout << missing << std::endl;
    return 0;
  }
  return maestro::cuda::serve(std::stoul(argv[1]), std::stoi(argv[2]));
}
