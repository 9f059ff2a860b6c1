// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/emulated_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  /// While it lives, no emulated work ends: the clock's thread waits. So the test's next calls are in time, however
  /// late this thread is.
  class Hold {
   public:
    explicit Hold(EmulatedClock& clock) {
      std::promise<void> reached;
      clock.call_at(Clock::now(), [&reached, released = released_.get_future().share()] {
        reached.set_value();
        released.wait();
      });
      reached.get_future().wait();
    }
    ~Hold() { released_.set_value(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    std::promise<void> released_;
  };

  cpu::CpuOperatorTable ops_;
  std::shared_ptr<EmulatedClock> clock_ = std::make_shared<EmulatedClock>();
  EmulatedDevice device_{"emulated:llm/0", ops_, clock_};
};

TEST(EmulatedClock, ends_its_thread_when_a_call_of_its_own_releases_it_last) {
  auto clock = std::make_shared<EmulatedClock>();
  EmulatedClock& same = *clock;
  std::promise<void> released;
  same.call_at(Clock::now(), [held = std::move(clock), &released]() mutable {
    held.reset();
    released.set_value();
  });
  released.get_future().wait();
}

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
  {
    const Hold hold(*clock_);
    device_.submit_lasting(milliseconds(10), Priority::background, [&] { order.push_back(1); });
    device_.submit_lasting(milliseconds(10), Priority::background, [&] {
      order.push_back(3);
      done.set_value();
    });
    device_.submit_lasting(milliseconds(10), Priority::critical, [&] { order.push_back(2); });
  }
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

TEST_F(EmulatedDeviceTest,
       work_of_no_length_runs_at_once_on_a_free_device_and_in_its_turn_on_a_busy_one) {  // ED-1, ED-4
  std::thread::id ran_on;
  device_.submit(Priority::critical, [&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());

  std::vector<int> order;
  std::promise<void> done;
  device_.submit_lasting(milliseconds(10), Priority::critical, [&] { order.push_back(1); });
  device_.submit(Priority::critical, [&] { order.push_back(2); });
  device_.submit(Priority::critical, [&] {
    order.push_back(3);
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(EmulatedDeviceTest, work_of_no_length_may_submit_more_of_it_without_end) {  // ED-4: no recursion over the queue
  int left = 100000;
  std::function<void()> again = [&] {
    if (--left > 0) device_.submit(Priority::critical, again);
  };
  device_.submit(Priority::critical, again);
  EXPECT_EQ(left, 0);
}

TEST_F(EmulatedDeviceTest, short_work_takes_its_time_in_sum_without_a_wait_for_each) {  // ED-4
  constexpr int passes = 5000;
  constexpr std::chrono::microseconds each(4);
  const auto begin = Clock::now();
  int left = passes;
  std::promise<void> done;
  std::function<void()> again = [&] {
    if (--left == 0) return done.set_value();
    device_.submit_lasting(each, Priority::critical, again);
  };
  device_.submit_lasting(each, Priority::critical, again);
  done.get_future().wait();
  EXPECT_GE(Clock::now() - begin, passes * each - EmulatedDevice::timer_resolution);
}

TEST_F(EmulatedDeviceTest, work_behind_late_work_begins_when_that_was_due_to_end) {  // ED-2
  std::vector<std::string> order;
  std::promise<Clock::time_point> all_due;
  std::promise<void> other_done;
  EmulatedDevice other("emulated", ops_, clock_);
  device_.submit_lasting(milliseconds(1), Priority::critical, [&] {  // late: ends when all following work is due
    std::this_thread::sleep_until(all_due.get_future().get());
  });
  device_.submit_lasting(milliseconds(5), Priority::critical, [&] { order.emplace_back("behind"); });
  other.submit_lasting(milliseconds(1), Priority::critical, [&] {
    order.emplace_back("other");
    other_done.set_value();
  });
  all_due.set_value(Clock::now() + milliseconds(10));
  other_done.get_future().wait();
  EXPECT_EQ(order, (std::vector<std::string>{"behind", "other"}));
}

TEST_F(EmulatedDeviceTest, after_stop_nothing_runs) {  // ED-3
  std::atomic<bool> ran = false;
  {
    const Hold hold(*clock_);
    device_.submit_lasting(milliseconds(5), Priority::critical, [&] { ran = true; });
    device_.stop();
  }
  std::promise<void> later;
  EmulatedDevice other("emulated", ops_, clock_);
  other.submit_lasting(milliseconds(20), Priority::critical, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(ran);
}

/// Queues joint work; if several threads call it, they hold a lock.
void submit_jointly(std::initializer_list<EmulatedDevice*> devices, Clock::duration lasts,
                    const std::function<void()>& on_each) {
  const auto joint = std::make_shared<JointWork>(devices.size());
  for (EmulatedDevice* device : devices) device->submit_joint(joint, lasts, on_each);
}

TEST_F(EmulatedDeviceTest, joint_work_begins_when_the_last_device_is_free_and_keeps_all_of_them) {  // ED-5
  EmulatedDevice other("emulated:1", ops_, clock_);
  std::vector<std::pair<std::string, Clock::duration>> ends;
  std::promise<void> done;
  const auto begin = Clock::now();
  const auto ended = [&](const char* name) { ends.emplace_back(name, Clock::now() - begin); };
  device_.submit_lasting(milliseconds(20), Priority::critical, [&] { ended("alone"); });
  submit_jointly({&device_, &other}, milliseconds(10), [&] { ended("joint"); });
  other.submit_lasting(milliseconds(10), Priority::background, [&] {
    ended("behind");
    done.set_value();
  });
  done.get_future().wait();
  ASSERT_EQ(ends.size(), 4u);
  const std::vector<std::pair<std::string, milliseconds>> expected{{"alone", milliseconds(20)},
                                                                   {"joint", milliseconds(30)},
                                                                   {"joint", milliseconds(30)},
                                                                   {"behind", milliseconds(40)}};
  for (std::size_t at = 0; at < ends.size(); ++at) {
    EXPECT_EQ(ends[at].first, expected[at].first) << at;
    EXPECT_GE(ends[at].second, expected[at].second) << at;
  }
}

TEST_F(EmulatedDeviceTest, overlapping_joint_work_of_many_threads_ends_and_has_one_order_on_every_device) {  // ED-5
  constexpr int devices = 4, threads = 4, each = 200;
  std::vector<std::unique_ptr<EmulatedDevice>> all;
  for (int at = 0; at < devices; ++at) all.push_back(std::make_unique<EmulatedDevice>("emulated", ops_, clock_));
  std::mutex submission;
  std::vector<std::vector<int>> order(devices);  // a device's work items write one after the other (ED-1)
  int number = 0;
  std::atomic<int> left = threads * each * 2;
  std::promise<void> done;
  const auto submit = [&](int thread) {
    for (int at = 0; at < each; ++at) {
      const int first = (thread + at) % devices, second = (first + 1 + at % (devices - 1)) % devices;
      const std::chrono::microseconds lasts((at * 7 + thread) % 90);
      all[second]->submit_lasting(lasts, Priority::background, [] {});
      const std::lock_guard lock(submission);
      const auto joint = std::make_shared<JointWork>(2);
      for (const int device : {first, second}) {
        all[device]->submit_joint(joint, lasts, [&, device, own = number] {
          order[device].push_back(own);
          if (--left == 0) done.set_value();
        });
      }
      ++number;
    }
  };
  std::vector<std::thread> submitters;
  for (int thread = 0; thread < threads; ++thread) submitters.emplace_back(submit, thread);
  for (std::thread& submitter : submitters) submitter.join();
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  for (const std::vector<int>& own : order) EXPECT_TRUE(std::ranges::is_sorted(own));
}

TEST_F(EmulatedDeviceTest, much_short_joint_work_behind_long_work_needs_no_deep_stack) {  // ED-4, ED-5
  EmulatedDevice other("emulated:1", ops_, clock_);
  constexpr int pieces = 100000;
  std::atomic<int> left = 2 * pieces;
  std::promise<void> done;
  device_.submit_lasting(milliseconds(20), Priority::critical, [] {});
  for (int at = 0; at < pieces; ++at) {
    submit_jointly({&device_, &other}, milliseconds(0), [&] {
      if (--left == 0) done.set_value();
    });
  }
  done.get_future().wait();
}

TEST_F(EmulatedDeviceTest, joint_work_does_not_run_on_a_device_that_has_stopped) {  // ED-3, ED-5
  EmulatedDevice other("emulated:1", ops_, clock_);
  std::atomic<int> ran = 0;
  {
    const Hold hold(*clock_);
    submit_jointly({&device_, &other}, milliseconds(5), [&] { ++ran; });
    other.stop();
  }
  std::promise<void> later;
  device_.submit_lasting(milliseconds(1), Priority::critical, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_EQ(ran, 1);
}

TEST_F(EmulatedDeviceTest, a_device_that_stops_while_it_waits_for_others_runs_nothing) {  // ED-3, ED-5
  EmulatedDevice other("emulated:1", ops_, clock_);
  std::atomic<int> ran = 0;
  std::promise<void> later;
  {
    const Hold hold(*clock_);
    device_.submit_lasting(milliseconds(5), Priority::critical, [] {});
    submit_jointly({&device_, &other}, milliseconds(0), [&] { ++ran; });
    device_.submit(Priority::critical, [&] { later.set_value(); });
    other.stop();
  }
  later.get_future().wait();
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace maestro
