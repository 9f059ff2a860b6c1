// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/completion_count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace maestro {
namespace {

Immediate immediate_of(std::uint64_t seq, std::uint32_t slots) {
  return {EdgeId(3), static_cast<std::uint32_t>(seq % slots), wrap_sequence(seq)};
}

TEST(CompletionCounter, the_last_expected_write_completes_a_sequence) {  // CC-1
  CompletionCounter counter(2);
  EXPECT_FALSE(*counter.expect(0, 3));
  EXPECT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::pending);
  EXPECT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::pending);
  EXPECT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::complete);
}

TEST(CompletionCounter, writes_that_arrive_before_their_expectation_are_kept) {  // CC-2, CC-3
  CompletionCounter counter(2);
  EXPECT_EQ(counter.arrived(immediate_of(1, 2), 4), Arrival::pending);
  EXPECT_TRUE(*counter.expect(1, 4));
}

TEST(CompletionCounter, a_write_for_a_released_sequence_is_stale) {  // CC-4
  CompletionCounter counter(2);
  ASSERT_TRUE(counter.expect(0, 1));
  ASSERT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::complete);
  ASSERT_TRUE(counter.release(0).ok());
  EXPECT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::stale);
  EXPECT_FALSE(*counter.expect(2, 1)) << "the slot's next sequence starts from zero";  // CC-5
}

TEST(CompletionCounter, a_write_for_a_sequence_released_early_is_stale) {  // CC-4
  CompletionCounter counter(2);
  ASSERT_EQ(counter.arrived(immediate_of(1, 2)), Arrival::pending);
  ASSERT_TRUE(*counter.expect(1, 1));
  ASSERT_TRUE(counter.release(1).ok());
  EXPECT_EQ(counter.released(), 0u);
  EXPECT_EQ(counter.arrived(immediate_of(1, 2)), Arrival::stale);
}

TEST(CompletionCounter, a_write_ahead_of_the_window_or_into_a_wrong_slot_is_stale) {  // CC-4
  CompletionCounter counter(3);
  EXPECT_EQ(counter.arrived(immediate_of(3, 3)), Arrival::stale);
  EXPECT_EQ(counter.arrived({EdgeId(3), 2, 1}), Arrival::stale);
  EXPECT_TRUE(*counter.expect(0, 0)) << "nothing may have been counted";
}

TEST(CompletionCounter, more_writes_than_expected_are_reported) {
  CompletionCounter counter(2);
  ASSERT_TRUE(counter.expect(0, 1));
  ASSERT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::complete);
  EXPECT_EQ(counter.arrived(immediate_of(0, 2)), Arrival::excess);
  ASSERT_EQ(counter.arrived(immediate_of(1, 2), 3), Arrival::pending);
  const auto late = counter.expect(1, 2);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::corrupt);
}

TEST(CompletionCounter, misuse_is_named) {
  CompletionCounter counter(2);
  EXPECT_FALSE(counter.release(0).ok());
  EXPECT_FALSE(counter.expect(2, 1).ok());
  ASSERT_TRUE(counter.expect(0, 1));
  EXPECT_NE(counter.expect(0, 1).error().message.find("announced twice"), std::string::npos);
  EXPECT_NE(counter.release(0).error().message.find("before all its writes"), std::string::npos);
  EXPECT_THROW(CompletionCounter(0), JobError);
  EXPECT_THROW(CompletionCounter(65), JobError);
}

// Delivers writes and expectations of all sequences in the window in random order, across the 16-bit wrap.
class RandomArrivals {
 public:
  RandomArrivals(std::uint64_t seed, std::uint64_t sequences)
      : random_(seed), slots_(static_cast<std::uint32_t>(1 + random_() % 7)), counter_(slots_), sequences_(sequences) {}

  void run() {
    while (counter_.released() < sequences_) {
      while (opened_ < std::min(sequences_, counter_.released() + slots_)) open(opened_++);
      ASSERT_NO_FATAL_FAILURE(deliver_one());
    }
    EXPECT_TRUE(work_.empty());
    EXPECT_EQ(completed_, sequences_);
  }

 private:
  struct Item {
    std::uint64_t seq;
    std::uint64_t expectation;  // 0: a write
  };
  void open(std::uint64_t seq) {
    const auto writes = 1 + random_() % 4;
    remaining_[seq] = writes + 1;
    work_.push_back({seq, writes});
    for (std::uint64_t i = 0; i < writes; ++i) work_.push_back({seq, 0});
  }
  void deliver_one() {
    std::swap(work_.back(), work_[random_() % work_.size()]);
    const auto item = work_.back();
    work_.pop_back();
    bool complete = false;
    if (item.expectation > 0) {
      const auto expected = counter_.expect(item.seq, item.expectation);
      ASSERT_TRUE(expected.ok()) << expected.error().message;
      complete = *expected;
    } else {
      const auto arrival = counter_.arrived(immediate_of(item.seq, slots_));
      ASSERT_TRUE(arrival == Arrival::pending || arrival == Arrival::complete);
      complete = arrival == Arrival::complete;
    }
    ASSERT_EQ(complete, --remaining_[item.seq] == 0) << "sequence " << item.seq;  // CC-1, CC-2
    if (!complete) return;
    ++completed_;
    remaining_.erase(item.seq);
    ASSERT_TRUE(counter_.release(item.seq).ok());
    ASSERT_EQ(counter_.arrived(immediate_of(item.seq, slots_)), Arrival::stale);  // CC-4
  }

  std::mt19937_64 random_;
  std::uint32_t slots_;
  CompletionCounter counter_;
  std::uint64_t sequences_;
  std::uint64_t opened_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<Item> work_;
  std::map<std::uint64_t, std::uint64_t> remaining_;
};

TEST(CompletionCounter, every_sequence_completes_exactly_once_in_any_order) {  // CC-1 to CC-5
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomArrivals(seed, 300).run();
    if (HasFatalFailure()) return;
  }
}

TEST(CompletionCounter, counting_goes_on_where_the_16_bit_sequence_wraps) {
  RandomArrivals(99, 70000).run();
}

}  // namespace
}  // namespace maestro
