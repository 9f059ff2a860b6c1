// SPDX-License-Identifier: Apache-2.0
#include "actors/messages/ready_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "actors/messages/message_types.hpp"

namespace maestro {
namespace {

using ThreadId = std::thread::id;

/// Reports the threads on which its handler runs.
class PlainActor : public caf::event_based_actor {
 public:
  PlainActor(caf::actor_config& config, std::promise<ThreadId> ran)
      : caf::event_based_actor(config), ran_(std::move(ran)) {}
  caf::behavior make_behavior() override {
    return {[this](BufferFree) { ran_.set_value(std::this_thread::get_id()); }};
  }

 private:
  std::promise<ThreadId> ran_;
};

/// Does the same, and passes the message on.
class MarkedActor : public caf::event_based_actor, public RunsAnywhere {
 public:
  MarkedActor(caf::actor_config& config, std::promise<ThreadId> ran, caf::actor next)
      : caf::event_based_actor(config), ran_(std::move(ran)), next_(std::move(next)) {}
  caf::behavior make_behavior() override {
    return {[this](BufferFree) {
      ran_.set_value(std::this_thread::get_id());
      if (next_) send_to(this, next_, BufferFree{});
    }};
  }
  void on_exit() override { next_ = nullptr; }

 private:
  std::promise<ThreadId> ran_;
  caf::actor next_;
};

/// Counts messages, and sends itself one more for each that says so.
class MessageCounter : public caf::event_based_actor {
 public:
  MessageCounter(caf::actor_config& config, std::atomic<int>* seen, int until, std::promise<void>* all)
      : caf::event_based_actor(config), seen_(seen), until_(until), all_(all) {}
  caf::behavior make_behavior() override {
    return {[this](const WriteFinished& write) {
      if (write.cookie > 0) send_to(this, caf::actor_cast<caf::actor>(this), WriteFinished{write.cookie - 1});
      if (++*seen_ == until_) all_->set_value();
    }};
  }

 private:
  std::atomic<int>* seen_;
  int until_;
  std::promise<void>* all_;
};

/// Stands for CAF's scheduler and its worker.
class QueueOwner {
 public:
  ReadyQueue::coordinator_data& data() { return data_; }
  QueueOwner* parent() { return this; }

 private:
  ReadyQueue::coordinator_data data_{nullptr};
};

TEST(ReadyQueue, wakes_one_worker_until_it_has_taken_a_job) {  // YR-1
  ReadyQueue queue;
  QueueOwner owner;
  owner.data().asleep = 2;
  queue.external_enqueue(&owner, nullptr);
  EXPECT_EQ(owner.data().woken, 1U);
  queue.external_enqueue(&owner, nullptr);
  EXPECT_EQ(owner.data().woken, 1U);
  owner.data().woken = 0;  // the worker runs
  owner.data().asleep = 1;
  (void)queue.dequeue(&owner);
  EXPECT_EQ(owner.data().woken, 1U);  // for the second job
  (void)queue.dequeue(&owner);
  EXPECT_TRUE(owner.data().jobs.empty());
}

TEST(ReadyQueue, leaves_a_single_job_of_a_handler_to_its_worker) {  // YR-1
  ReadyQueue queue;
  QueueOwner owner;
  owner.data().asleep = 1;
  queue.internal_enqueue(&owner, nullptr);
  EXPECT_EQ(owner.data().woken, 0U);
  queue.internal_enqueue(&owner, nullptr);
  EXPECT_EQ(owner.data().woken, 1U);
}

class ReadyQueueTest : public ::testing::Test {
 protected:
  static caf::actor_system_config& configured(caf::actor_system_config& config) {
    config.add_message_types<caf::id_block::maestro>();
    config.set("logger.verbosity", caf::atom("quiet"));
    use_ready_queue(config, 2);
    return config;
  }
  using Spawned = std::pair<caf::actor, std::future<ThreadId>>;  // with the thread that the actor's handler ran on
  Spawned plain_actor() {
    std::promise<ThreadId> ran;
    std::future<ThreadId> thread = ran.get_future();
    return {system_.spawn<PlainActor, caf::lazy_init>(std::move(ran)), std::move(thread)};
  }
  Spawned marked_actor(const caf::actor& next) {
    std::promise<ThreadId> ran;
    std::future<ThreadId> thread = ran.get_future();
    return {system_.spawn<MarkedActor, caf::lazy_init>(std::move(ran), next), std::move(thread)};
  }
  caf::actor_system_config config_;
  caf::actor_system system_{configured(config_)};
};

TEST_F(ReadyQueueTest, runs_every_message_of_several_threads) {  // YR-2
  constexpr int actors = 20, threads = 3, rounds = 200;
  std::atomic<int> seen{0};
  std::promise<void> all;
  std::vector<caf::actor> counters;
  const int messages = actors * threads * rounds * 2;
  for (int at = 0; at < actors; ++at) counters.push_back(system_.spawn<MessageCounter>(&seen, messages, &all));
  std::vector<std::thread> senders;
  for (int thread = 0; thread < threads; ++thread) {
    senders.emplace_back([&counters] {
      for (int round = 0; round < rounds; ++round) {
        for (const caf::actor& counter : counters) send_from_outside(counter, WriteFinished{1});
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  all.get_future().wait();
  EXPECT_EQ(seen, messages);
}

TEST_F(ReadyQueueTest, wakes_a_worker_for_a_single_message) {  // YR-2
  for (int round = 0; round < 500; ++round) {
    auto [plain, ran] = plain_actor();
    send_from_outside(plain, BufferFree{});
    EXPECT_NE(ran.get(), std::this_thread::get_id());
  }
}

TEST_F(ReadyQueueTest, runs_marked_actors_on_the_thread_that_reports_to_them) {  // YR-3
  auto [plain, plain_ran] = plain_actor();
  auto [second, second_ran] = marked_actor(plain);
  auto [first, first_ran] = marked_actor(second);
  {
    const RunHere here;
    send_from_outside(first, BufferFree{});
    EXPECT_EQ(first_ran.wait_for(std::chrono::seconds(0)), std::future_status::timeout);  // not before the end
  }
  EXPECT_EQ(first_ran.get(), std::this_thread::get_id());
  EXPECT_EQ(second_ran.get(), std::this_thread::get_id());
  EXPECT_NE(plain_ran.get(), std::this_thread::get_id());
}

TEST_F(ReadyQueueTest, leaves_marked_actors_to_workers_otherwise) {
  auto [marked, ran] = marked_actor(nullptr);
  send_from_outside(marked, BufferFree{});
  EXPECT_NE(ran.get(), std::this_thread::get_id());
}

}  // namespace
}  // namespace maestro
