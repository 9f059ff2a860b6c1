// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cuda_device.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <numeric>

#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_device(); !missing.empty()) GTEST_SKIP() << missing;
    device_ = open(1, no_cuts_);
  }
  [[nodiscard]] std::unique_ptr<CudaDevice> open(double share, DeviceParts& parts,
                                                 Priority priority = Priority::critical) {
    DeviceOptions options;
    options.name = "cuda:0";
    options.share = share;
    options.priority = priority;
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    return std::make_unique<CudaDevice>(options, poller_, parts, any_table);
  }

  std::vector<std::string> lines_;
  DeviceParts no_cuts_{0, GreenContextCalls{}};
  Poller poller_;
  std::unique_ptr<CudaDevice> device_;  // before the poller is destroyed
};

TEST_F(CudaDeviceTest, work_runs_on_the_devices_thread_with_the_device_current) {
  std::promise<int> current;
  device_->submit(Priority::critical, [&current] {
    int device = -1;
    static_cast<void>(cudaGetDevice(&device));
    current.set_value(device);
  });
  EXPECT_EQ(current.get_future().get(), 0);
  EXPECT_GT(device_->multiprocessors(), 0);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(CudaDeviceTest, completions_come_in_order_and_behind_the_work_they_are_about) {  // CD-2
  constexpr int works = 40;
  const SpaceMemory counter(device_->memory(), sizeof(int));
  const SpaceMemory copies(device_->pinned(), works * sizeof(int));
  auto* const copied = reinterpret_cast<int*>(copies.data());
  std::vector<int> numbers(works);
  std::iota(numbers.begin(), numbers.end(), 100);
  std::vector<int> seen;  // written by the poller's thread until all have completed
  std::promise<void> all;
  device_->submit(Priority::critical, [&] {
    for (int work = 0; work < works; ++work) {
      const auto at = static_cast<std::size_t>(work);
      check(cudaMemcpyAsync(counter.data(), &numbers[at], sizeof(int), cudaMemcpyHostToDevice, device_->stream()),
            "up");
      check(cudaMemcpyAsync(copied + at, counter.data(), sizeof(int), cudaMemcpyDeviceToHost, device_->stream()),
            "down");
      device_->finish([&, at](const std::string& failure) {
        EXPECT_EQ(failure, "");
        seen.push_back(copied[at]);
        if (seen.size() == works) all.set_value();
      });
    }
  });
  all.get_future().wait();
  EXPECT_EQ(seen, numbers);
}

TEST_F(CudaDeviceTest, stop_waits_for_the_stream_and_for_every_completion) {  // CD-3
  const SpaceMemory block(device_->memory(), 1 << 20);
  std::promise<void> queued;
  int delivered = 0;
  device_->submit(Priority::critical, [&] {
    for (int work = 0; work < 30; ++work) {
      check(cudaMemsetAsync(block.data(), work, block.size(), device_->stream()), "set");
      device_->finish([&delivered](const std::string&) { ++delivered; });
    }
    queued.set_value();
  });
  queued.get_future().wait();
  device_->stop();
  EXPECT_EQ(delivered, 30);
  device_->submit(Priority::critical, [] { FAIL() << "work after stop()"; });
  device_->stop();
}

TEST_F(CudaDeviceTest, stop_waits_for_the_end_of_what_completions_hold) {  // CD-3
  constexpr std::chrono::milliseconds long_enough{50};                     // for a stop() that does not wait
  std::promise<void> queued;
  std::promise<void> stopped;
  bool ended_first = false;
  const auto end = [&](int* held) {
    delete held;
    ended_first = stopped.get_future().wait_for(long_enough) == std::future_status::timeout;
  };
  device_->submit(Priority::critical, [&] {
    device_->finish([held = std::shared_ptr<int>(new int(0), end)](const std::string&) {});
    queued.set_value();
  });
  queued.get_future().wait();
  device_->stop();
  stopped.set_value();
  device_.reset();
  poller_.stop();
  EXPECT_TRUE(ended_first);
}

TEST_F(CudaDeviceTest, time_passes_between_marks_of_its_work) {
  std::promise<void> finished;
  std::unique_ptr<WorkTimer> timer = device_->timer();
  device_->submit(Priority::critical, [&] {
    timer->mark();
    timer->mark();
    device_->finish([&finished](const std::string&) { finished.set_value(); });
  });
  finished.get_future().wait();
  EXPECT_GE(timer->milliseconds(0, 1), 0);
}

TEST_F(CudaDeviceTest, two_devices_on_one_gpu_work_side_by_side_and_say_that_they_are_not_cut) {
  const std::unique_ptr<CudaDevice> half = open(0.5, no_cuts_, Priority::background);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("the driver lacks green contexts"), std::string::npos) << lines_[0];
  EXPECT_EQ(half->multiprocessors(), device_->multiprocessors());
  EXPECT_NE(half->stream(), device_->stream());
  int first = 0;
  int second = 0;
  ASSERT_EQ(cudaStreamGetPriority(device_->stream(), &first), cudaSuccess);
  ASSERT_EQ(cudaStreamGetPriority(half->stream(), &second), cudaSuccess);
  EXPECT_LT(first, second);  // a lower number has priority
  std::promise<void> finished;
  half->submit(Priority::critical, [&] { half->finish([&finished](const std::string&) { finished.set_value(); }); });
  finished.get_future().wait();
}

}  // namespace
}  // namespace maestro::cuda
