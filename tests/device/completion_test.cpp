// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "runtime/device/completion_poller.hpp"
#include "runtime/device/completion_queue.hpp"

namespace maestro {
namespace {

/// An event whose state is set by the test.
using Switch = std::shared_ptr<EventState>;

Switch pending() {
  return std::make_shared<EventState>();
}

EventState look(const Switch& event) {
  return *event;
}

struct Log {
  std::vector<std::string> lines;
  Completion line(const std::string& name) {
    return
        [this, name](const std::string& failure) { lines.push_back(failure.empty() ? name : name + ": " + failure); };
  }
};
using Lines = std::vector<std::string>;

TEST(CompletionQueue, completions_of_a_stream_keep_their_order_whatever_their_events_answer) {  // CQ-1
  CompletionQueue<Switch> queue;
  Log log;
  const Switch first = pending();
  const Switch second = pending();
  queue.add(1, first, log.line("first"));
  queue.add(1, second, log.line("second"));
  second->complete = true;
  EXPECT_EQ(queue.poll(look), 0u);
  first->complete = true;
  EXPECT_EQ(queue.poll(look), 2u);
  EXPECT_EQ(log.lines, (Lines{"first", "second"}));
  EXPECT_TRUE(queue.empty());
}

TEST(CompletionQueue, every_completion_is_delivered_once) {  // CQ-2
  CompletionQueue<Switch> queue;
  Log log;
  const Switch event = pending();
  event->complete = true;
  for (StreamNumber stream = 1; stream <= 3; ++stream) queue.add(stream, event, log.line(std::to_string(stream)));
  EXPECT_EQ(queue.poll(look), 3u);
  EXPECT_EQ(queue.poll(look), 0u);
  EXPECT_EQ(log.lines.size(), 3u);
}

TEST(CompletionQueue, a_failure_is_told_to_all_that_wait_behind_it_and_to_no_other_stream) {  // CQ-3
  CompletionQueue<Switch> queue;
  Log log;
  const Switch bad = pending();
  const Switch good = pending();
  queue.add(1, bad, log.line("a"));
  queue.add(1, pending(), log.line("b"));
  queue.add(2, good, log.line("c"));
  EXPECT_EQ(queue.poll(look), 0u);
  bad->failure = "out of bounds";
  EXPECT_EQ(queue.poll(look), 2u);
  EXPECT_EQ(log.lines, (Lines{"a: out of bounds", "b: out of bounds"}));
  good->complete = true;
  EXPECT_EQ(queue.poll(look), 1u);
  EXPECT_EQ(log.lines.back(), "c");
}

TEST(CompletionQueue, rounds_begin_with_another_stream_each_time) {  // CQ-4
  CompletionQueue<int> queue;
  for (int stream = 1; stream <= 3; ++stream) queue.add(static_cast<StreamNumber>(stream), stream, {});
  std::vector<int> first_asked;
  for (int round = 0; round < 6; ++round) {
    std::vector<int> asked;
    EXPECT_EQ(queue.poll([&asked](const int& event) {
      asked.push_back(event);
      return EventState();
    }),
              0u);
    EXPECT_EQ(asked.size(), 3u);  // only the oldest of each stream
    first_asked.push_back(asked.front());
  }
  EXPECT_EQ(first_asked, (std::vector<int>{1, 2, 3, 1, 2, 3}));
}

TEST(PollPace, it_asks_eagerly_at_first_and_then_with_growing_pauses_up_to_the_longest) {  // QP-1
  PollPace pace;
  for (int round = 0; round < PollPace::eager_rounds; ++round) EXPECT_EQ(pace.next(false).count(), 0);
  std::vector<std::int64_t> pauses;
  for (int round = 0; round < 8; ++round) pauses.push_back(pace.next(false).count());
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 50, 50}));
  EXPECT_EQ(pace.next(true).count(), 0);
}

/// An event that completes after the given number of polls.
struct Countdown {
  std::shared_ptr<std::atomic<int>> left;
};
struct Count {
  EventState operator()(const Countdown& event) const { return {--*event.left <= 0, {}}; }
};

TEST(CompletionPoller, completions_come_in_the_order_of_each_stream_also_when_the_poller_has_to_wait) {  // CQ-1, QP-1
  CompletionPoller<Countdown, Count> poller;
  constexpr int streams = 3;
  constexpr int works = 50;
  std::vector<std::vector<int>> seen(streams);  // each written only by the poller's thread
  std::vector<StreamNumber> numbers;
  for (int stream = 0; stream < streams; ++stream) numbers.push_back(poller.new_stream());
  std::promise<void> all;
  std::atomic<int> left = streams * works;
  for (int work = 0; work < works; ++work) {
    for (int stream = 0; stream < streams; ++stream) {
      const int asked = work % 10 == 0 ? PollPace::eager_rounds + 3 : 1 + work % 3;
      poller.add(numbers[static_cast<std::size_t>(stream)], {std::make_shared<std::atomic<int>>(asked)},
                 [&, stream, work](const std::string& failure) {
                   EXPECT_EQ(failure, "");
                   seen[static_cast<std::size_t>(stream)].push_back(work);
                   if (--left == 0) all.set_value();
                 });
    }
  }
  all.get_future().wait();
  poller.stop();
  for (const std::vector<int>& of_stream : seen) {
    ASSERT_EQ(of_stream.size(), static_cast<std::size_t>(works));
    for (int work = 0; work < works; ++work) EXPECT_EQ(of_stream[static_cast<std::size_t>(work)], work);
  }
}

TEST(CompletionPoller, stop_returns_when_all_that_was_added_is_delivered) {  // QP-2
  int delivered = 0;                                                         // read after the poller's thread is joined
  CompletionPoller<Countdown, Count> poller;
  const StreamNumber stream = poller.new_stream();
  for (int work = 0; work < 20; ++work) {
    poller.add(stream, {std::make_shared<std::atomic<int>>(30)}, [&delivered](const std::string&) { ++delivered; });
  }
  poller.stop();
  EXPECT_EQ(delivered, 20);
  poller.stop();
}

}  // namespace
}  // namespace maestro
