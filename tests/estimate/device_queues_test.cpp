// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/device_queues.hpp"

#include <gmock/gmock.h>

#include <array>
#include <map>
#include <random>

namespace maestro {
namespace {

using testing::ElementsAre;

class DeviceQueuesTest : public testing::Test {
 protected:
  void submit(std::vector<int> devices, double ms, Priority priority = Priority::critical) {
    const std::size_t number = starts_.size();
    starts_.push_back(-1);
    queues_.submit(devices, priority, ms, [this, number](double start_ms) { starts_[number] = start_ms; });
  }
  void run() {
    while (clock_.next()) {
    }
  }
  VirtualClock clock_;
  DeviceQueues queues_{clock_};
  std::vector<double> starts_;  // by work, of what has ended
};

TEST_F(DeviceQueuesTest, a_device_runs_its_work_in_order) {  // DQ-2
  submit({0}, 3);
  submit({0}, 2);
  submit({1}, 1);
  run();
  EXPECT_THAT(starts_, ElementsAre(0, 3, 0));
  EXPECT_EQ(clock_.now_ms(), 5);
}

TEST_F(DeviceQueuesTest, work_of_several_devices_runs_on_all_of_them_together) {  // DQ-1
  submit({0}, 3);
  submit({0, 1}, 2);
  submit({1}, 1);  // waits behind the work of both
  run();
  EXPECT_THAT(starts_, ElementsAre(0, 3, 5));
}

TEST_F(DeviceQueuesTest, critical_work_goes_before_other_work_that_has_not_begun) {  // DQ-2
  submit({0}, 3, Priority::background);
  submit({0}, 2, Priority::background);
  submit({0}, 1);
  submit({0}, 1);
  run();
  EXPECT_THAT(starts_, ElementsAre(0, 5, 3, 4));
}

TEST_F(DeviceQueuesTest, work_without_a_device_starts_at_once) {
  submit({0}, 3);
  submit({}, 7);
  run();
  EXPECT_THAT(starts_, ElementsAre(0, 0));
}

TEST(DeviceQueues, all_work_ends_and_no_device_runs_two_at_a_time) {  // DQ-1, DQ-2
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    VirtualClock clock;
    DeviceQueues queues(clock);
    std::map<int, std::vector<std::pair<double, double>>> busy;
    int ended = 0;
    for (int work = 0; work < 40; ++work) {
      std::vector<int> devices;
      for (int device = 0; device < 4; ++device) {
        if (random() % 2 == 0) devices.push_back(device);
      }
      const double ms = static_cast<double>(random() % 5);
      const Priority priority = devices.size() > 1 || random() % 2 == 0 ? Priority::critical : Priority::background;
      queues.submit(devices, priority, ms, [&, devices, ms](double start_ms) {
        ++ended;
        for (const int device : devices) busy[device].emplace_back(start_ms, start_ms + ms);
      });
    }
    while (clock.next()) {
    }
    EXPECT_EQ(ended, 40);
    for (const auto& [device, times] : busy) {
      for (std::size_t at = 1; at < times.size(); ++at) EXPECT_GE(times[at].first, times[at - 1].second);
    }
  }
}

}  // namespace
}  // namespace maestro
