// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/work_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "runtime/core/usable_cores.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {
namespace {

/// Blocks the thread inside a work item until it is opened, so that the queue's content is certain.
class Gate {
 public:
  void close(WorkThread& thread) {
    thread.submit(Priority::critical, [this] {
      reached_.set_value();
      opened_.get_future().wait();
    });
    reached_.get_future().wait();
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> reached_;
  std::promise<void> opened_;
};

/// Waits until all queued background work has run.
void drain(WorkThread& thread) {
  std::promise<void> done;
  thread.submit(Priority::background, [&done] { done.set_value(); });
  done.get_future().wait();
}

TEST(WorkThread, work_of_one_priority_runs_in_order_of_submission) {  // WT-1
  for (const Priority priority : {Priority::critical, Priority::background}) {
    WorkThread thread([] {});
    std::vector<int> order;
    for (int number = 0; number < 100; ++number) {
      thread.submit(priority, [&order, number] { order.push_back(number); });
    }
    drain(thread);
    ASSERT_EQ(order.size(), 100u);
    for (int number = 0; number < 100; ++number) EXPECT_EQ(order[static_cast<std::size_t>(number)], number);
  }
}

TEST(WorkThread, background_work_starts_only_when_no_critical_work_waits) {  // WT-2
  WorkThread thread([] {});
  Gate gate;
  gate.close(thread);
  std::vector<char> order;
  for (const char name : {'a', 'b'}) thread.submit(Priority::background, [&order, name] { order.push_back(name); });
  for (const char name : {'X', 'Y'}) thread.submit(Priority::critical, [&order, name] { order.push_back(name); });
  gate.open();
  drain(thread);
  EXPECT_EQ(order, (std::vector<char>{'X', 'Y', 'a', 'b'}));
}

TEST(WorkThread, critical_work_that_comes_during_background_work_goes_before_the_rest) {  // WT-2
  WorkThread thread([] {});
  std::vector<char> order;
  Gate gate;
  gate.close(thread);
  thread.submit(Priority::background, [&] {
    order.push_back('a');
    thread.submit(Priority::critical, [&order] { order.push_back('X'); });
  });
  thread.submit(Priority::background, [&order] { order.push_back('b'); });
  gate.open();
  drain(thread);
  EXPECT_EQ(order, (std::vector<char>{'a', 'X', 'b'}));
}

TEST(WorkThread, stop_finishes_what_runs_and_drops_what_is_queued) {  // WT-3
  WorkThread thread([] {});
  std::atomic<bool> finished = false;
  std::atomic<int> late = 0;
  std::promise<void> running;
  std::promise<void> stopping;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> dropped = held;
  thread.submit(Priority::critical, [&] {
    running.set_value();
    stopping.get_future().wait();
    finished = true;
  });
  running.get_future().wait();
  thread.submit(Priority::critical, [&late, held] { late += *held + 1; });
  thread.submit(Priority::background, [&late] { ++late; });
  held.reset();
  std::promise<void> entered;
  std::thread stopper([&] {
    entered.set_value();
    thread.stop();
  });
  entered.get_future().wait();
  // The worker must continue only after stop() has begun; otherwise it would run the remaining work.
  while (!dropped.expired()) {
    auto probe = std::make_shared<int>(0);
    const std::weak_ptr<int> refused = probe;
    thread.submit(Priority::background, [probe] { (void)probe; });
    probe.reset();
    if (refused.expired()) break;  // dropped by submit(): stop() has begun
    std::this_thread::yield();
  }
  stopping.set_value();
  stopper.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(late, 0);
  EXPECT_TRUE(dropped.expired()) << "dropped work lets go of what it holds";
  thread.submit(Priority::critical, [&late] { ++late; });
  thread.stop();  // harmless if repeated
  EXPECT_EQ(late, 0);
}

TEST(WorkThread, preparation_comes_before_any_work_and_on_the_same_thread) {
  std::thread::id prepared;
  WorkThread thread([&prepared] { prepared = std::this_thread::get_id(); });
  std::promise<std::thread::id> worked;
  thread.submit(Priority::critical, [&] { worked.set_value(std::this_thread::get_id()); });
  const std::thread::id id = worked.get_future().get();
  thread.stop();
  EXPECT_EQ(id, prepared);
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST(CpuDevice, work_runs_on_the_core_it_is_named_after) {
  const std::vector<int> cores = usable_cores();
  ASSERT_FALSE(cores.empty());
  const cpu::CpuOperatorTable ops;
  const int last = static_cast<int>(cores.size()) - 1;
  CpuDevice device("cpu:" + std::to_string(last), last, ops);
  EXPECT_EQ(device.name(), "cpu:" + std::to_string(last));
  EXPECT_EQ(&device.ops(), &ops);
  std::promise<std::vector<int>> usable;
  device.submit(Priority::critical, [&usable] { usable.set_value(usable_cores()); });
  const std::vector<int> found = usable.get_future().get();
  device.stop();
  // A sandbox may refuse pinning; then the thread keeps all cores.
  EXPECT_TRUE(found == std::vector<int>{cores.back()} || found == cores);
}

}  // namespace
}  // namespace maestro
