// A process that shows a block of its device memory to another: prints what is needed to reach it as one line of hex
// digits, or a line that says why not; then answers every line that it reads with the block's bytes, in hex. argv: the
// block's size, and the value of its bytes.
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
  const SpaceMemory block(device.memory(), bytes);
  std::vector<std::byte> host(bytes, static_cast<std::byte>(value));
  device.memory().write(block.data(), host.data(), bytes);
  const std::vector<std::byte> exported = MemorySharing().export_block(device, block.data());
  std::cout << (exported.empty() ? "this system does not share device memory" : hex(exported)) << std::endl;
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
