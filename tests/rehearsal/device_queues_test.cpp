// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/device_queues.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::Pair;

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
  std::vector<double> starts_;  // start by work item, once it has ended
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
  submit({1}, 1);  // waits for the work of both
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

TEST_F(DeviceQueuesTest, devices_of_a_core_share_it_evenly) {  // CO-1
  DeviceQueues queues(clock_, {0, 0, 0, 1});
  std::map<int, double> ends;
  const auto add = [&](std::vector<int> devices, double ms) {
    queues.submit(devices, Priority::critical, ms,
                  [&, first = devices.front()](double) { ends[first] = clock_.now_ms(); });
  };
  add({0}, 2);
  add({1}, 5);
  add({3}, 7);
  clock_.after(2, [&] { add({2}, 4); });
  run();
  // Two share the core until 2, when 1 ms of each is done; three until 5, when the first ends. The other two have 3 and
  // 3 ms left, and end together after 6 ms.
  EXPECT_THAT(ends, ElementsAre(Pair(0, 5), Pair(1, 11), Pair(2, 11), Pair(3, 7)));
}

TEST_F(DeviceQueuesTest, work_of_several_devices_ends_with_its_last_part) {  // DQ-1
  DeviceQueues queues(clock_, {0, 1, 0});
  std::vector<double> ends;
  const auto ended = [&](double) { ends.push_back(clock_.now_ms()); };
  queues.submit(std::array{0, 1}, Priority::critical, 3, ended);
  queues.submit(std::array{2}, Priority::critical, 5, ended);  // shares the core with the first part
  queues.submit(std::array{1}, Priority::critical, 1, ended);  // its core is idle from 3 to 6
  run();
  EXPECT_THAT(ends, ElementsAre(6, 7, 8));
}

TEST_F(DeviceQueuesTest, work_outside_of_queues_takes_its_part_of_cores) {
  DeviceQueues queues(clock_, {0, 0});
  std::vector<double> ends;
  queues.submit(std::array{0}, Priority::critical, 2, [&](double) { ends.push_back(clock_.now_ms()); });
  queues.run(std::array{0, 1}, Priority::critical, 1, [&] { ends.push_back(clock_.now_ms()); });
  run();
  EXPECT_THAT(ends, ElementsAre(3, 4));
}

TEST_F(DeviceQueuesTest, background_work_has_a_core_while_there_is_no_critical_work) {  // CO-1
  DeviceQueues queues(clock_, {0, 0, 0});
  std::vector<std::pair<int, double>> ends;
  const auto add = [&](int device, Priority priority, double ms) {
    queues.submit(std::array{device}, priority, ms,
                  [&, device](double) { ends.emplace_back(device, clock_.now_ms()); });
  };
  add(0, Priority::background, 10);
  clock_.after(4, [&] { add(1, Priority::critical, 3); });
  clock_.after(5, [&] { add(2, Priority::critical, 1); });
  clock_.after(20, [&] { add(0, Priority::background, 2); });
  run();
  // From 4 on the background work has 6 ms left. The critical work of 5 ms shares the core until 7, and ends at 8.
  EXPECT_THAT(ends, ElementsAre(Pair(2, 7), Pair(1, 8), Pair(0, 14), Pair(0, 22)));
}

TEST_F(DeviceQueuesTest, parts_of_a_core_wait_for_nothing_until_their_demands_exceed_it) {  // CO-3, DQ-4
  DeviceQueues queues(clock_, {0, 0, 0}, {0.75, 0.5, 0.25});
  std::map<int, double> ends;
  const auto add = [&](int device, Priority priority, double ms) {
    queues.submit(std::array{device}, priority, ms, [&, device](double) { ends[device] = clock_.now_ms(); });
  };
  add(0, Priority::critical, 8);
  add(2, Priority::background, 2);                              // 0.75 + 0.25: both at full speed
  clock_.after(4, [&] { add(1, Priority::background, 3.2); });  // 0.75 + 0.5: 4 ms complete 3.2 ms of work
  run();
  // The first has 0.8 ms left when the second ends at 8, and then has the core for itself.
  EXPECT_EQ(ends.at(2), 2);
  EXPECT_DOUBLE_EQ(ends.at(1), 8);
  EXPECT_DOUBLE_EQ(ends.at(0), 8.8);
}

/// Work for some devices at random times.
struct DrawnWork {
  double at_ms = 0;
  std::vector<int> devices;
  double ms = 0;
};

std::vector<DrawnWork> drawn_work(std::mt19937_64& random, int devices) {
  std::vector<DrawnWork> drawn(40);
  for (DrawnWork& work : drawn) {
    work.at_ms = static_cast<double>(random() % 60) / 3;
    work.ms = static_cast<double>(random() % 50) / 7;
    for (int device = 0; device < devices; ++device) {
      if (random() % 3 == 0) work.devices.push_back(device);
    }
    if (work.devices.empty()) work.devices.push_back(0);
  }
  return drawn;
}

std::vector<double> ends_of(const std::vector<DrawnWork>& drawn, std::vector<int> cores) {
  VirtualClock clock;
  DeviceQueues queues(clock, std::move(cores));
  std::vector<double> ends(drawn.size(), -1);
  for (std::size_t at = 0; at < drawn.size(); ++at) {
    clock.after(drawn[at].at_ms, [&, at] {
      queues.submit(drawn[at].devices, Priority::critical, drawn[at].ms,
                    [&, at](double) { ends[at] = clock.now_ms(); });
    });
  }
  while (clock.next()) {
  }
  return ends;
}

TEST(DeviceQueues, own_cores_change_nothing) {  // DQ-3, CO-2
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    const std::vector<DrawnWork> drawn = drawn_work(random, 4);
    EXPECT_EQ(ends_of(drawn, {}), ends_of(drawn, {3, 0, 1, 2}));
  }
}

TEST(DeviceQueues, a_core_does_its_work_and_is_never_idle_while_a_device_has_some) {  // CO-1
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<DrawnWork> drawn = drawn_work(random, 5);
    for (DrawnWork& work : drawn) work.devices.resize(1);  // parts for several devices wait for each other
    const std::vector<double> ends = ends_of(drawn, {0, 1, 0, 1, 0});
    for (int core = 0; core < 2; ++core) {
      // A core that always works if it has work ends as if it ran one item after the other, in any order.
      std::vector<std::pair<double, double>> pieces;
      double last = 0;
      for (std::size_t at = 0; at < drawn.size(); ++at) {
        EXPECT_GE(ends[at], drawn[at].at_ms + drawn[at].ms - 1e-9);
        if (drawn[at].devices.front() % 2 != core) continue;
        pieces.emplace_back(drawn[at].at_ms, drawn[at].ms);
        last = std::max(last, ends[at]);
      }
      std::ranges::sort(pieces);
      double free = 0;
      for (const auto& [at_ms, ms] : pieces) free = std::max(free, at_ms) + ms;
      EXPECT_NEAR(last, free, 1e-9) << round;
    }
  }
}

}  // namespace
}  // namespace maestro
