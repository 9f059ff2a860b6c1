// SPDX-License-Identifier: Apache-2.0
// Memory that the driver does not open, and its errors; only the fake can produce them.
#include "runtime/device/cuda/memory_sharing.hpp"
#include "tests/device/cuda/exporter.hpp"
#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

constexpr std::size_t size = 512;

class UnreachableMemory : public ::testing::Test {
 protected:
  [[nodiscard]] std::string refusal(std::span<const std::byte> exported) const {
    std::string why_not;
    EXPECT_EQ(MemorySharing().import_block(device_, exported, why_not), nullptr);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // MH-3
    return why_not;
  }
  DeviceParts no_cuts_{0, GreenContextCalls{}};
  Poller poller_;
  CudaDevice device_{DeviceOptions{.name = "cuda:0", .log = {}}, poller_, no_cuts_, any_table};
};

TEST_F(UnreachableMemory, of_this_process_is_refused_by_the_driver_too) {  // HR-5
  const SpaceMemory block(device_.memory(), size);
  const std::vector<std::byte> exported = MemorySharing().export_block(device_, block.data());  // another process's
  ASSERT_FALSE(exported.empty());
  EXPECT_EQ(refusal(exported), "the driver does not open it: an error of the fake");
}

TEST_F(UnreachableMemory, of_a_process_that_has_ended_is_refused) {  // HR-5
  Exporter exporter(size, 1);
  ASSERT_TRUE(exporter.shares()) << exporter.introduction;
  exporter.kill_now();
  EXPECT_EQ(refusal(exporter.exported()), "the driver does not open it: an error of the fake");
}

}  // namespace
}  // namespace maestro::cuda
