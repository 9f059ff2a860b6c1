// SPDX-License-Identifier: Apache-2.0
// Errors of a failed device, and the state of unused devices: only the fake can produce them.
#include <atomic>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "runtime/core/result.hpp"
#include "tests/device/cuda/site.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace maestro::cuda {
namespace {

class FailingDevice : public ::testing::Test {
 protected:
  void TearDown() override { fake_cuda::reset_device(); }
  [[nodiscard]] std::string finish(CudaDevice& device) {
    std::promise<std::string> told;
    device.submit(Priority::critical,
                  [&] { device.finish([&told](const std::string& failure) { told.set_value(failure); }); });
    return told.get_future().get();
  }
  [[nodiscard]] std::unique_ptr<CudaDevice> open() {
    DeviceOptions options;
    options.name = "cuda:0";
    return std::make_unique<CudaDevice>(options, poller_, no_cuts_, any_table);
  }
  DeviceParts no_cuts_{0, GreenContextCalls{}};
  Poller poller_;
};

TEST_F(FailingDevice, every_completion_is_told_of_the_failure_with_the_devices_name) {  // CD-2
  const std::unique_ptr<CudaDevice> device = open();
  EXPECT_EQ(finish(*device), "");
  fake_cuda::break_device("an illegal memory access was encountered");
  for (int call = 0; call < 3; ++call) {
    const std::string failure = finish(*device);
    EXPECT_EQ(failure.rfind("cuda:0: ", 0), 0u) << failure;
    EXPECT_NE(failure.find("an illegal memory access was encountered"), std::string::npos) << failure;
  }
}

TEST_F(FailingDevice, completions_that_were_outstanding_are_told_too_and_stop_ends) {  // CD-2, CD-3
  std::unique_ptr<CudaDevice> device = open();
  std::vector<std::string> failures;
  std::promise<void> queued;
  device->submit(Priority::critical, [&] {
    fake_cuda::enqueue_step([] { fake_cuda::break_device("device-side assert"); }, device->stream());
    for (int call = 0; call < 3; ++call) {
      device->finish([&failures](const std::string& failure) { failures.push_back(failure); });
    }
    queued.set_value();
  });
  queued.get_future().wait();
  device->stop();
  ASSERT_EQ(failures.size(), 3u);
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("device-side assert"), std::string::npos) << failure;
  }
}

/// A group whose network fails once.
class FailingGroup final : public WatchedGroup {
 public:
  [[nodiscard]] std::string network_failure() const override { return std::exchange(text_, {}); }

 private:
  mutable std::string text_ = "the cable is out";
};

TEST_F(FailingDevice, completions_behind_a_group_whose_network_has_failed_are_told) {
  const std::unique_ptr<CudaDevice> device = open();
  const FailingGroup group;
  device->groups()->add(group);
  std::atomic<bool> ended = false;
  std::promise<std::string> told;
  device->submit(Priority::critical, [&] {
    {
      const fake_cuda::Lock lock(fake_cuda::runtime().mutex);
      fake_cuda::runtime().push(device->stream(), [&ended] { return ended.load(); });  // waits for a peer
    }
    device->finish([&](const std::string& failure) { told.set_value(failure); });
  });
  EXPECT_EQ(told.get_future().get(), "cuda:0: the cable is out");
  device->groups()->remove(group);
  ended = true;
  EXPECT_EQ(finish(*device), "");
}

TEST_F(FailingDevice, copies_are_told_of_the_failure_and_those_behind_it_too) {  // CD-2, CD-4
  const std::unique_ptr<CudaDevice> device = open();
  std::byte* const block = device->memory().allocate(100);
  std::vector<std::string> failures;
  const auto note = [&failures](const std::string& failure) { failures.push_back(failure); };
  device->move(block, block + 50, 50, note);
  ASSERT_EQ(cudaStreamSynchronize(device->copy_stream()), cudaSuccess);
  fake_cuda::enqueue_step([] { fake_cuda::break_device("uncorrectable NVLink error"); }, device->copy_stream());
  device->move(block, block + 50, 50, note);
  device->move(block, block + 50, 50, note);
  ASSERT_NE(cudaStreamSynchronize(device->copy_stream()), cudaSuccess);
  device->move(block, block + 50, 50, note);  // refused at once
  device->memory().release(block, 100);
  device->stop();
  ASSERT_EQ(failures.size(), 4u);
  for (std::size_t at = 1; at < failures.size(); ++at) {
    EXPECT_EQ(failures[at].rfind("cuda:0: ", 0), 0u) << failures[at];
    EXPECT_NE(failures[at].find("uncorrectable NVLink error"), std::string::npos) << failures[at];
  }
}

TEST_F(FailingDevice, memory_of_it_is_refused_with_its_words_and_still_taken_back) {
  const std::unique_ptr<CudaDevice> device = open();
  std::byte* const block = device->memory().allocate(100);
  fake_cuda::break_device("uncorrectable ECC error");
  device->memory().release(block, 100);
  try {
    static_cast<void>(device->memory().allocate(200));
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_NE(std::string(error.what()).find("uncorrectable ECC error"), std::string::npos) << error.what();
  }
}

TEST(StartedDevices, a_process_that_uses_one_device_starts_no_other) {
  fake_cuda::reset_device();
  std::thread([] {  // a thread that has not selected a device
    DeviceParts no_cuts(1, GreenContextCalls{});
    Poller poller;
    DeviceOptions options;
    options.index = 1;
    options.name = "cuda:1";
    CudaDevice device(options, poller, no_cuts, any_table);
    std::thread([&device] {
      const SpaceMemory block(device.memory(), 64);
      const SpaceMemory host(device.pinned(), 64);
      std::promise<void> moved;
      device.move(host.data(), block.data(), 64, [&moved](const std::string&) { moved.set_value(); });
      moved.get_future().wait();
    }).join();
    const std::unique_ptr<WorkTimer> timer = device.timer();
    std::promise<void> worked;
    device.submit(Priority::critical, [&] {
      timer->mark();
      device.finish([&worked](const std::string&) { worked.set_value(); });
    });
    worked.get_future().wait();
    std::thread([&timer] { static_cast<void>(timer->milliseconds(0, 0)); }).join();
  })
      .join();
  EXPECT_EQ(fake_cuda::started_devices(), std::set<int>{1});
}

}  // namespace
}  // namespace maestro::cuda
