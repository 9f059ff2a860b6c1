// SPDX-License-Identifier: Apache-2.0
// Device memory of another process (memory_exporter.cpp).
#include "runtime/device/cuda/memory_sharing.hpp"

#include <future>

#include "runtime/core/result.hpp"
#include "tests/device/cuda/exporter.hpp"
#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

constexpr std::size_t small = 600;  // shares its pages with other memory

class MemorySharingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_device(); !missing.empty()) GTEST_SKIP() << missing;
    device_ = open(0);
  }
  void TearDown() override {
    EXPECT_TRUE(device_ == nullptr || cudaPeekAtLastError() == cudaSuccess);  // MH-3
  }
  [[nodiscard]] std::unique_ptr<CudaDevice> open(std::size_t index) {
    DeviceOptions options;
    options.index = index;
    options.name = "cuda:" + std::to_string(index);
    return std::make_unique<CudaDevice>(options, poller_, index == 0 ? parts_ : other_parts_, any_table);
  }
  [[nodiscard]] static std::string move(Device& device, const std::byte* from, std::byte* to, std::size_t bytes) {
    std::promise<std::string> told;
    device.move(from, to, bytes, [&told](const std::string& failure) { told.set_value(failure); });
    return told.get_future().get();
  }
  [[nodiscard]] static Bytes bytes_of(const CudaDevice& device, const std::byte* block, std::size_t bytes) {
    Bytes found(bytes);
    device.memory().read(reinterpret_cast<std::byte*>(found.data()), block, bytes);
    return found;
  }

  DeviceParts parts_{0, GreenContextCalls{}};
  DeviceParts other_parts_{1, GreenContextCalls{}};
  Poller poller_;
  MemorySharing sharing_;
  std::unique_ptr<CudaDevice> device_;  // before the poller is destroyed
  std::string why_not_;
};

TEST_F(MemorySharingTest, memory_of_another_process_is_read_and_written_in_place) {
  for (const std::size_t bytes : {small, std::size_t{3} << 20}) {
    Exporter exporter(bytes, 7);
    if (!exporter.shares()) GTEST_SKIP() << exporter.introduction;
    const SpaceMemory block(device_->memory(), bytes);
    const auto memory = sharing_.import_block(*device_, exporter.exported(), why_not_);
    ASSERT_NE(memory, nullptr) << why_not_;
    EXPECT_EQ(move(*device_, memory->data(), block.data(), bytes), "");
    EXPECT_EQ(bytes_of(*device_, block.data(), bytes), Bytes(bytes, 7));
    const Bytes written(small, 9);
    device_->memory().write(block.data(), reinterpret_cast<const std::byte*>(written.data()), small);
    EXPECT_EQ(move(*device_, block.data(), memory->data() + bytes - small, small), "");
    Bytes expected(bytes, 7);
    std::fill(expected.end() - small, expected.end(), static_cast<unsigned char>(9));
    EXPECT_EQ(exporter.bytes(), expected);
    EXPECT_EQ(exporter.end(), 0);
  }
}

TEST_F(MemorySharingTest, a_block_is_imported_as_often_as_one_likes_and_stays_until_the_last_has_let_go) {  // MH-2
  Exporter exporter(small, 3);
  if (!exporter.shares()) GTEST_SKIP() << exporter.introduction;
  auto first = sharing_.import_block(*device_, exporter.exported(), why_not_);
  ASSERT_NE(first, nullptr) << why_not_;
  const auto second = sharing_.import_block(*device_, exporter.exported(), why_not_);
  ASSERT_NE(second, nullptr) << why_not_;
  EXPECT_EQ(second->data(), first->data());
  first.reset();
  const SpaceMemory block(device_->memory(), small);
  EXPECT_EQ(move(*device_, second->data(), block.data(), small), "");
  EXPECT_EQ(bytes_of(*device_, block.data(), small), Bytes(small, 3));
}

TEST_F(MemorySharingTest, small_blocks_that_lie_side_by_side_are_each_reached_at_their_place) {  // MH-1
  Exporter exporter(small, 20);
  if (!exporter.shares()) GTEST_SKIP() << exporter.introduction;
  const auto first = sharing_.import_block(*device_, exporter.exported(), why_not_);
  ASSERT_NE(first, nullptr) << why_not_;
  const auto second = sharing_.import_block(*device_, exporter.exported_second(), why_not_);
  ASSERT_NE(second, nullptr) << why_not_;
  const SpaceMemory block(device_->memory(), small);
  EXPECT_EQ(move(*device_, first->data(), block.data(), small), "");
  EXPECT_EQ(bytes_of(*device_, block.data(), small), Bytes(small, 20));
  EXPECT_EQ(move(*device_, second->data(), block.data(), small), "");
  EXPECT_EQ(bytes_of(*device_, block.data(), small), Bytes(small, 21));
}

TEST_F(MemorySharingTest, another_device_of_the_process_imports_it_too) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) GTEST_SKIP() << "one device";
  Exporter exporter(small, 5);
  if (!exporter.shares()) GTEST_SKIP() << exporter.introduction;
  const std::unique_ptr<CudaDevice> other = open(1);
  const auto memory = sharing_.import_block(*other, exporter.exported(), why_not_);
  if (memory == nullptr) GTEST_SKIP() << why_not_;
  const SpaceMemory block(other->memory(), small);
  EXPECT_EQ(move(*other, memory->data(), block.data(), small), "");
  EXPECT_EQ(bytes_of(*other, block.data(), small), Bytes(small, 5));
}

TEST_F(MemorySharingTest, what_cannot_be_imported_is_told_in_a_few_words) {  // MH-3
  const auto refusal = [this](std::span<const std::byte> exported) {
    std::string why_not;
    EXPECT_EQ(sharing_.import_block(*device_, exported, why_not), nullptr);
    return why_not;
  };
  EXPECT_EQ(refusal({}), "its process cannot share its device memory");
  EXPECT_EQ(refusal(std::vector<std::byte>(10)), "it is not memory of a CUDA device");
  const SpaceMemory block(device_->memory(), small);
  std::vector<std::byte> own = sharing_.export_block(*device_, block.data());
  if (own.empty()) GTEST_SKIP() << "this system does not share device memory";
  EXPECT_EQ(refusal(own), "it is memory of this process");
  own[sizeof(cudaIpcMemHandle_t) + sizeof(cudaUUID_t)] ^= std::byte{1};
  EXPECT_EQ(refusal(own), "it is on another host");
}

TEST_F(MemorySharingTest, only_whole_blocks_that_are_in_use_are_exported) {  // MH-1
  std::byte* const block = device_->memory().allocate(small);
  EXPECT_THROW((void)sharing_.export_block(*device_, block + 1), JobError);
  EXPECT_THROW((void)sharing_.export_block(*device_, nullptr), JobError);
  device_->memory().release(block, small);
  EXPECT_THROW((void)sharing_.export_block(*device_, block), JobError);
}

}  // namespace
}  // namespace maestro::cuda
