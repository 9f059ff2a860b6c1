// What a device that has failed says, which only the double can show.
#include <atomic>
#include <future>
#include <utility>

#include "runtime/core/result.hpp"
#include "tests/device/cuda/site.hpp"
#include "tests/support/cuda_double/host_cuda.hpp"
#include "tests/support/cuda_double/streams.hpp"

namespace maestro::cuda {
namespace {

class FailingDevice : public ::testing::Test {
 protected:
  void TearDown() override { cuda_double::reset_device(); }
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
  cuda_double::break_device("an illegal memory access was encountered");
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
    cuda_double::enqueue_step([] { cuda_double::break_device("device-side assert"); }, device->stream());
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
      const cuda_double::Lock lock(cuda_double::runtime().mutex);
      cuda_double::runtime().push(device->stream(), [&ended] { return ended.load(); });  // waits for a peer
    }
    device->finish([&](const std::string& failure) { told.set_value(failure); });
  });
  EXPECT_EQ(told.get_future().get(), "cuda:0: the cable is out");
  device->groups()->remove(group);
  ended = true;
  EXPECT_EQ(finish(*device), "");
}

TEST_F(FailingDevice, memory_of_it_is_refused_with_its_words_and_still_taken_back) {
  const std::unique_ptr<CudaDevice> device = open();
  std::byte* const block = device->memory().allocate(100);
  cuda_double::break_device("uncorrectable ECC error");
  device->memory().release(block, 100);
  try {
    static_cast<void>(device->memory().allocate(200));
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_NE(std::string(error.what()).find("uncorrectable ECC error"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace maestro::cuda
