// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/write_queue.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace maestro {
namespace {

using namespace std::chrono_literals;

// A provider that accepts as many writes per peer as a test allows; only the test advances the clock.
class WriteQueueTest : public ::testing::Test {
 protected:
  static constexpr auto timeout = 100ms;

  void accept(std::uint32_t peer, std::uint64_t cookie) {
    WriteRequest request;
    request.peer = PeerHandle(peer);
    request.bytes = 10;
    request.cookie = cookie;
    queue.accept(request, now);
  }
  std::vector<std::uint64_t> post() {
    const auto failures = queue.post_waiting([this](QueuedWrite& write, Error& error) {
      if (refused.count(write.request.cookie) != 0) {
        error = {ErrorCode::peer_lost, "refused"};
        return PostOutcome::failed;
      }
      auto& room = rooms[write.request.peer.value()];
      if (room == 0) return PostOutcome::again;
      --room;
      out.push_back(&write);
      return PostOutcome::posted;
    });
    return cookies_of(failures);
  }
  std::vector<std::uint64_t> expire() {
    const auto failures = queue.expire(now, [](PeerHandle peer) { return "peer " + std::to_string(peer.value()); });
    for (const auto& failure : failures) last_error = failure.error;
    return cookies_of(failures);
  }
  static std::vector<std::uint64_t> cookies_of(const std::vector<WriteFailed>& failures) {
    std::vector<std::uint64_t> cookies;
    for (const auto& failure : failures) cookies.push_back(failure.cookie);
    return cookies;
  }
  std::vector<std::uint64_t> out_cookies() const {
    std::vector<std::uint64_t> cookies;
    for (const auto* write : out) cookies.push_back(write->request.cookie);
    return cookies;
  }

  using Cookies = std::vector<std::uint64_t>;
  WriteQueue queue{timeout, timeout};
  WriteQueue::TimePoint now{};
  std::map<std::uint32_t, int> rooms;
  std::set<std::uint64_t> refused;
  std::vector<QueuedWrite*> out;
  Error last_error;
};

TEST_F(WriteQueueTest, writes_to_one_peer_go_out_in_order) {  // WQ-2
  for (std::uint64_t cookie : {5, 3, 9}) accept(0, cookie);
  rooms[0] = 2;
  EXPECT_EQ(post(), Cookies());
  EXPECT_EQ(out_cookies(), (Cookies{5, 3}));
  EXPECT_EQ(queue.waiting(), 1u);
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies());
  EXPECT_EQ(out_cookies(), (Cookies{5, 3, 9}));
}

TEST_F(WriteQueueTest, a_peer_that_takes_nothing_delays_no_other) {  // WQ-2
  accept(0, 1);
  accept(1, 2);
  rooms[1] = 1;
  EXPECT_EQ(post(), Cookies());
  EXPECT_EQ(out_cookies(), Cookies{2});
}

TEST_F(WriteQueueTest, a_refused_write_fails_and_the_next_one_goes_out) {  // WQ-1
  accept(0, 1);
  accept(0, 2);
  refused = {1};
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies{1});
  EXPECT_EQ(out_cookies(), Cookies{2});
}

TEST_F(WriteQueueTest, a_write_that_finds_no_way_out_fails_at_its_deadline_naming_the_peer) {  // WQ-3
  accept(4, 1);
  now += timeout - 1ms;
  EXPECT_EQ(expire(), Cookies());
  now += 1ms;
  EXPECT_EQ(expire(), Cookies{1});
  EXPECT_EQ(last_error.code, ErrorCode::timeout);
  EXPECT_NE(last_error.message.find("to peer 4 found no way out within 100 ms"), std::string::npos);
  EXPECT_TRUE(queue.empty());
}

TEST_F(WriteQueueTest, a_posted_write_that_never_finishes_fails_at_its_deadline) {  // WQ-3
  accept(0, 1);
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies());
  now += timeout;
  EXPECT_EQ(expire(), Cookies{1});
  EXPECT_NE(last_error.message.find("was not finished"), std::string::npos);
}

TEST_F(WriteQueueTest, a_slow_peer_that_moves_is_not_given_up) {  // WQ-3
  accept(0, 1);
  accept(0, 2);
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies());
  now += timeout - 1ms;
  EXPECT_TRUE(queue.finish(*out[0], now));
  now += timeout - 1ms;
  EXPECT_EQ(expire(), Cookies()) << "198 ms old, but the peer finished a write 99 ms ago";
  now += 1ms;
  EXPECT_EQ(expire(), Cookies{2});
}

TEST_F(WriteQueueTest, time_in_which_the_process_was_stopped_does_not_count) {  // WQ-3
  queue = WriteQueue(timeout, 5ms);
  accept(0, 1);
  now += 4ms;
  EXPECT_EQ(expire(), Cookies());
  now += 10 * timeout;
  EXPECT_EQ(expire(), Cookies()) << "14 ms counted";
  for (int look = 0; look < 17; ++look) {
    now += 5ms;
    EXPECT_EQ(expire(), Cookies()) << look;
  }
  now += 5ms;
  EXPECT_EQ(expire(), Cookies{1});
}

TEST_F(WriteQueueTest, a_write_given_up_keeps_its_record_until_the_provider_returns_it) {  // WQ-1, WQ-4
  accept(0, 1);
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies());
  QueuedWrite* const late = out[0];
  now += timeout;
  ASSERT_EQ(expire(), Cookies{1});
  rooms[0] = 1;
  accept(0, 2);
  EXPECT_EQ(post(), Cookies());
  EXPECT_NE(out[1], late) << "the provider still owns the record";
  EXPECT_EQ(queue.find_posted(late->provider_context.data()), late);
  EXPECT_FALSE(queue.finish(*late, now)) << "its failure was reported already";
  EXPECT_EQ(queue.find_posted(late->provider_context.data()), nullptr);
  EXPECT_TRUE(queue.finish(*out[1], now));
}

TEST_F(WriteQueueTest, giving_up_a_peer_fails_its_writes_and_no_others) {
  for (std::uint64_t cookie : {1, 2}) accept(0, cookie);
  accept(1, 3);
  rooms[0] = 1;
  EXPECT_EQ(post(), Cookies());
  const auto failed = queue.give_up(PeerHandle(0), {ErrorCode::peer_lost, "gone"});
  EXPECT_EQ(std::set<std::uint64_t>({1, 2}), [&] {
    const auto cookies = cookies_of(failed);
    return std::set<std::uint64_t>(cookies.begin(), cookies.end());
  }());
  EXPECT_EQ(queue.waiting(), 1u);
  EXPECT_EQ(cookies_of(queue.give_up_all({ErrorCode::cancelled, "stop"})), Cookies{3});
  EXPECT_TRUE(queue.empty());
}

TEST_F(WriteQueueTest, every_write_ends_exactly_once_whatever_happens) {  // WQ-1
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    queue = WriteQueue(timeout, timeout);
    out.clear();
    refused.clear();
    std::map<std::uint64_t, int> ends;
    std::uint64_t next = 0;
    const auto note = [&](const Cookies& cookies) {
      for (auto cookie : cookies) ++ends[cookie];
    };
    for (int round = 0; round < 500; ++round) {
      if (random() % 2 == 0) {
        if (random() % 10 == 0) refused.insert(next);
        accept(static_cast<std::uint32_t>(random() % 3), next++);
      }
      for (std::uint32_t peer = 0; peer < 3; ++peer) rooms[peer] = static_cast<int>(random() % 2);
      note(post());
      if (!out.empty() && random() % 2 == 0) {
        std::swap(out.back(), out[random() % out.size()]);
        const auto cookie = out.back()->request.cookie;
        if (queue.finish(*out.back(), now)) note({cookie});
        out.pop_back();
      }
      now += std::chrono::milliseconds(random() % 20);
      note(expire());
      if (random() % 50 == 0) note(cookies_of(queue.give_up(PeerHandle(1), {ErrorCode::peer_lost, "gone"})));
    }
    note(cookies_of(queue.give_up_all({ErrorCode::cancelled, "stop"})));
    ASSERT_EQ(ends.size(), next);
    for (const auto& [cookie, count] : ends) ASSERT_EQ(count, 1) << "cookie " << cookie;
  }
}

}  // namespace
}  // namespace maestro
