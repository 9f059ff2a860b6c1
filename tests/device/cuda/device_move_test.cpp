// SPDX-License-Identifier: Apache-2.0
// Copies during a device's work (Device::move).
#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/cuda/peer_access.hpp"
#include "tests/device/cuda/site.hpp"
#include "tests/device/cuda/stream_gate.hpp"

namespace maestro::cuda {
namespace {

constexpr std::size_t bytes = 4096;
using Bytes = std::vector<unsigned char>;

class DeviceMove : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_device(); !missing.empty()) GTEST_SKIP() << missing;
    device_ = open(0);
  }
  [[nodiscard]] std::unique_ptr<CudaDevice> open(std::size_t index) {
    DeviceOptions options;
    options.index = index;
    options.name = "cuda:" + std::to_string(index);
    return std::make_unique<CudaDevice>(options, poller_, index == 0 ? parts_ : other_parts_, any_table);
  }
  /// Moves and waits. Returns the argument of `done`.
  [[nodiscard]] static std::string move(Device& device, const std::byte* from, std::byte* to, std::size_t size) {
    std::promise<std::string> told;
    device.move(from, to, size, [&told](const std::string& failure) { told.set_value(failure); });
    return told.get_future().get();
  }
  [[nodiscard]] static Bytes bytes_of(CudaDevice& device, const std::byte* block, std::size_t size) {
    Bytes found(size);
    device.memory().read(reinterpret_cast<std::byte*>(found.data()), block, size);
    return found;
  }
  [[nodiscard]] SpaceMemory page_locked(unsigned char value) const {
    SpaceMemory memory(device_->pinned(), bytes);
    std::memset(memory.data(), value, bytes);
    return memory;
  }

  DeviceParts parts_{0, GreenContextCalls{}};
  DeviceParts other_parts_{1, GreenContextCalls{}};
  Poller poller_;
  std::unique_ptr<CudaDevice> device_;  // before the poller is destroyed
};

TEST_F(DeviceMove, copies_both_ways_between_host_and_device) {
  const SpaceMemory source = page_locked(7);
  const SpaceMemory target = page_locked(0);
  const SpaceMemory block(device_->memory(), bytes);
  EXPECT_EQ(move(*device_, source.data(), block.data(), bytes), "");
  EXPECT_EQ(bytes_of(*device_, block.data(), bytes), Bytes(bytes, 7));
  EXPECT_EQ(move(*device_, block.data(), target.data() + 1, bytes - 1), "");
  EXPECT_EQ(target.data()[0], std::byte{0});
  EXPECT_EQ(Bytes(reinterpret_cast<unsigned char*>(target.data()) + 1,
                  reinterpret_cast<unsigned char*>(target.data()) + bytes),
            Bytes(bytes - 1, 7));
  EXPECT_EQ(move(*device_, source.data(), block.data(), 0), "");
}

TEST_F(DeviceMove, goes_on_while_the_devices_work_stands_still) {  // CD-4
  const SpaceMemory source = page_locked(9);
  const SpaceMemory block(device_->memory(), bytes);
  std::promise<void> held;
  std::promise<void> worked;
  bool finished = false;
  std::unique_ptr<StreamGate> gate;
  device_->submit(Priority::critical, [&] {
    gate = std::make_unique<StreamGate>(device_->stream());
    device_->finish([&](const std::string&) {
      finished = true;
      worked.set_value();
    });
    held.set_value();
  });
  held.get_future().wait();
  EXPECT_EQ(move(*device_, source.data(), block.data(), bytes), "");
  EXPECT_EQ(move(*device_, block.data(), source.data(), bytes), "");
  EXPECT_FALSE(finished);
  gate->open();
  worked.get_future().wait();
  EXPECT_EQ(bytes_of(*device_, block.data(), bytes), Bytes(bytes, 9));
}

TEST_F(DeviceMove, leaves_the_devices_work_alone_while_copies_stand_still) {  // CD-4
  const StreamGate gate(device_->copy_stream());
  std::promise<void> worked;
  device_->move(nullptr, nullptr, 0, [](const std::string&) {});
  device_->submit(Priority::critical, [&] { device_->finish([&worked](const std::string&) { worked.set_value(); }); });
  worked.get_future().wait();
}

TEST_F(DeviceMove, copies_of_several_threads_each_complete_in_the_order_of_their_calls) {  // CD-4
  constexpr int threads = 4;
  constexpr int moves = 50;
  const SpaceMemory source = page_locked(1);
  const SpaceMemory block(device_->memory(), bytes);
  std::vector<std::vector<int>> told(threads);  // written by the poller's thread
  std::vector<std::thread> movers;
  for (int thread = 0; thread < threads; ++thread) {
    movers.emplace_back([&, thread] {
      for (int at = 0; at < moves; ++at) {
        device_->move(source.data(), block.data() + thread, 1, [&told, thread, at](const std::string& failure) {
          EXPECT_EQ(failure, "");
          told[static_cast<std::size_t>(thread)].push_back(at);
        });
      }
    });
  }
  for (std::thread& mover : movers) mover.join();
  device_->stop();  // CD-3
  for (const std::vector<int>& order : told) {
    ASSERT_EQ(order.size(), static_cast<std::size_t>(moves));
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST_F(DeviceMove, stop_waits_for_copies_and_for_the_end_of_what_their_completions_hold) {  // CD-3
  const SpaceMemory source = page_locked(3);
  const SpaceMemory block(device_->memory(), bytes);
  int delivered = 0;
  bool ended = false;
  const auto end = [&](int* held) {
    delete held;
    ended = true;
  };
  for (int at = 0; at < 30; ++at) {
    device_->move(source.data(), block.data(), bytes,
                  [&delivered, held = std::shared_ptr<int>(new int(0), end)](const std::string&) { ++delivered; });
  }
  device_->stop();
  EXPECT_EQ(delivered, 30);
  EXPECT_TRUE(ended);
}

TEST_F(DeviceMove, reaches_the_memory_of_another_device_of_the_process) {  // PE-1
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) GTEST_SKIP() << "one device";
  const std::unique_ptr<CudaDevice> other = open(1);
  PeerAccess peers;
  peers.opened(0);
  peers.opened(1);
  const SpaceMemory source = page_locked(5);
  const SpaceMemory here(device_->memory(), bytes);
  const SpaceMemory there(other->memory(), bytes);
  EXPECT_EQ(move(*device_, source.data(), here.data(), bytes), "");
  EXPECT_EQ(move(*device_, here.data(), there.data(), bytes), "");
  EXPECT_EQ(bytes_of(*other, there.data(), bytes), Bytes(bytes, 5));
  EXPECT_EQ(move(*other, source.data(), there.data(), bytes), "");
  EXPECT_EQ(move(*device_, there.data(), here.data(), bytes), "");
  EXPECT_EQ(bytes_of(*device_, here.data(), bytes), Bytes(bytes, 5));
}

TEST_F(DeviceMove, devices_that_were_opened_reach_each_other_and_asking_again_leaves_no_error) {  // PE-1
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  int possible = 0;
  if (devices > 1) {
    ASSERT_EQ(cudaDeviceCanAccessPeer(&possible, 0, 1), cudaSuccess);
  }
  if (possible == 0) GTEST_SKIP() << "no two devices that reach each other";
  for (int round = 0; round < 2; ++round) {
    PeerAccess peers;
    peers.opened(1);
    peers.opened(0);
    peers.opened(1);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  for (const int device : {0, 1}) {
    const CurrentDevice current(device);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1 - device, 0), cudaErrorPeerAccessAlreadyEnabled);
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace
}  // namespace maestro::cuda
