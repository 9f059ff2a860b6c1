#include "runtime/device/emulated_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  cpu::CpuOperatorTable ops_;
  std::shared_ptr<EmulatedClock> clock_ = std::make_shared<EmulatedClock>();
  EmulatedDevice device_{"emulated:llm/0", ops_, clock_};
};

TEST_F(EmulatedDeviceTest, work_ends_no_sooner_than_it_lasts) {
  std::promise<Clock::time_point> ended;
  const auto begin = Clock::now();
  device_.submit_lasting(milliseconds(20), Priority::critical, [&] { ended.set_value(Clock::now()); });
  EXPECT_GE(ended.get_future().get() - begin, milliseconds(20));
}

TEST_F(EmulatedDeviceTest, one_piece_of_work_at_a_time_and_waiting_critical_work_first) {  // ED-1
  std::vector<int> order;
  std::promise<void> done;
  const auto begin = Clock::now();
  device_.submit_lasting(milliseconds(10), Priority::background, [&] { order.push_back(1); });
  device_.submit_lasting(milliseconds(10), Priority::background, [&] {
    order.push_back(3);
    done.set_value();
  });
  device_.submit_lasting(milliseconds(10), Priority::critical, [&] { order.push_back(2); });
  done.get_future().wait();
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(EmulatedDeviceTest, many_devices_work_side_by_side_on_one_thread) {
  constexpr int devices = 200;
  std::vector<std::unique_ptr<EmulatedDevice>> all;
  std::atomic<int> left = devices;
  std::promise<void> done;
  const auto begin = Clock::now();
  for (int at = 0; at < devices; ++at) {
    all.push_back(std::make_unique<EmulatedDevice>("emulated", ops_, clock_));
    all.back()->submit_lasting(milliseconds(100), Priority::critical, [&] {
      if (--left == 0) done.set_value();
    });
  }
  done.get_future().wait();
  EXPECT_LT(Clock::now() - begin, milliseconds(100 * devices / 4));
}

TEST_F(EmulatedDeviceTest, after_stop_nothing_runs) {  // ED-3
  std::atomic<bool> ran = false;
  device_.submit_lasting(milliseconds(5), Priority::critical, [&] { ran = true; });
  device_.stop();
  std::promise<void> later;
  EmulatedDevice other("emulated", ops_, clock_);
  other.submit_lasting(milliseconds(20), Priority::critical, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace maestro
