// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/reduction_round.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

namespace maestro {
namespace {

TEST(ShardRange, shards_cover_the_vector_in_order_without_overlap) {  // RD-1
  for (std::size_t replicas = 1; replicas <= 7; ++replicas) {
    for (const std::size_t elements : {0u, 1u, 15u, 16u, 17u, 31u, 33u, 100u, 1000u, 4096u}) {
      std::size_t next = 0;
      for (std::size_t index = 0; index < replicas; ++index) {
        const ShardRange shard = shard_range(elements, replicas, index);
        EXPECT_EQ(shard.first, next);
        next = shard.first + shard.count;
        EXPECT_TRUE(next == elements || shard.count % 16 == 0);
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(ShardRange, shards_differ_by_at_most_a_grain) {  // RD-1
  for (std::size_t replicas = 1; replicas <= 7; ++replicas) {
    for (std::size_t index = 0; index < replicas; ++index) {
      const double even = 10000.0 / static_cast<double>(replicas);
      EXPECT_NEAR(static_cast<double>(shard_range(10000, replicas, index).count), even, 16);
    }
  }
}

TEST(ReductionRound, nothing_is_added_before_the_own_gradient_and_all_parts_are_here) {  // RD-2
  ReductionRound round(2, 2);
  round.part_arrived();
  round.part_arrived();
  EXPECT_FALSE(round.may_sum());
  round.local_ready();
  EXPECT_TRUE(round.may_sum());
  round.shard_summed();
  round.shard_released();
  EXPECT_FALSE(round.may_sum()) << "a shard is summed once";
}

TEST(ReductionRound, sums_that_come_before_the_own_one_are_kept) {  // RD-3
  ReductionRound round(1, 1);
  round.sum_arrived();
  EXPECT_FALSE(round.may_copy());
  round.local_ready();
  EXPECT_FALSE(round.may_sum());
  round.part_arrived();
  EXPECT_TRUE(round.may_sum());
  round.shard_summed();
  round.shard_released();
  EXPECT_TRUE(round.may_copy());
  round.sums_copied();
  EXPECT_FALSE(round.may_copy());
  EXPECT_TRUE(round.complete());
}

TEST(ReductionRound, a_round_is_not_complete_while_something_sent_is_read) {  // RD-3
  ReductionRound round(0, 0);
  round.local_ready();
  round.shard_summed();
  round.shard_released();
  round.send_started();
  round.send_started();
  round.sums_copied();
  EXPECT_FALSE(round.complete());
  round.send_done();
  EXPECT_FALSE(round.complete());
  round.send_done();
  EXPECT_TRUE(round.complete());
}

TEST(ReductionRound, an_empty_shard_is_not_waited_for) {  // RD-4
  ReductionRound round(0, 1);                             // nothing to add here, one other shard
  round.local_ready();
  EXPECT_TRUE(round.may_sum());
  round.shard_summed();
  round.shard_released();
  EXPECT_FALSE(round.may_copy());
  round.sum_arrived();
  EXPECT_TRUE(round.may_copy());
}

TEST(ReductionRound, a_held_sum_keeps_the_round_from_going_on_until_it_is_released) {  // RD-5
  ReductionRound round(1, 1);
  round.local_ready();
  round.part_arrived();
  EXPECT_FALSE(round.holds_sum());
  round.shard_summed();
  round.sum_arrived();
  EXPECT_TRUE(round.holds_sum());
  EXPECT_FALSE(round.may_copy());
  EXPECT_FALSE(round.complete());
  round.shard_released();
  EXPECT_FALSE(round.holds_sum());
  EXPECT_TRUE(round.may_copy());
}

/// Replicas that send parts and sums as messages, delivered in random order.
class Exchange {
 public:
  Exchange(std::uint64_t seed, std::size_t replicas, std::size_t elements)
      : random_(seed), replicas_(replicas), elements_(elements), parts_(replicas) {
    std::normal_distribution<float> normal;
    std::size_t filled = 0;
    for (std::size_t index = 0; index < replicas; ++index) filled += shard(index).count > 0 ? 1 : 0;
    for (std::size_t index = 0; index < replicas; ++index) {
      std::vector<float> gradient(elements);
      for (float& value : gradient) value = std::exp(5 * normal(random_)) * (random_() % 2 == 0 ? 1.0f : -1.0f);
      gradients_.push_back(gradient);
      parts_[index].resize(replicas);
      const bool own = shard(index).count > 0;
      rounds_.emplace_back(own ? replicas - 1 : 0, filled - (own ? 1 : 0));
      post([this, index] { begin(index); });
    }
    initial_ = gradients_;
  }

  void run() {
    while (!events_.empty()) {
      std::swap(events_.back(), events_[random_() % events_.size()]);
      const auto event = std::move(events_.back());
      events_.pop_back();
      event();
    }
  }

  void check() const {
    for (std::size_t element = 0; element < elements_; ++element) {
      float sum = initial_[0][element];
      for (std::size_t index = 1; index < replicas_; ++index) sum += initial_[index][element];
      for (std::size_t index = 0; index < replicas_; ++index) ASSERT_EQ(gradients_[index][element], sum);
    }
    for (const ReductionRound& round : rounds_) ASSERT_TRUE(round.complete());
  }

 private:
  [[nodiscard]] ShardRange shard(std::size_t index) const { return shard_range(elements_, replicas_, index); }
  void post(std::function<void()> event) { events_.push_back(std::move(event)); }
  [[nodiscard]] std::vector<float> slice(std::size_t replica, ShardRange range) const {
    const auto* first = gradients_[replica].data() + range.first;
    return {first, first + range.count};
  }
  void begin(std::size_t self) {
    rounds_[self].local_ready();
    for (std::size_t owner = 0; owner < replicas_; ++owner) {
      if (owner == self || shard(owner).count == 0) continue;
      rounds_[self].send_started();
      post([this, self, owner, part = slice(self, shard(owner))] {
        parts_[owner][self] = part;
        rounds_[owner].part_arrived();
        rounds_[self].send_done();
        advance(owner);
      });
    }
    advance(self);
  }
  void advance(std::size_t self) {
    if (rounds_[self].may_sum()) sum(self);
    if (rounds_[self].may_copy()) rounds_[self].sums_copied();
  }
  void sum(std::size_t self) {
    const ShardRange range = shard(self);
    parts_[self][self] = slice(self, range);
    for (std::size_t at = 0; at < range.count; ++at) {
      float total = parts_[self][0][at];
      for (std::size_t from = 1; from < replicas_; ++from) total += parts_[self][from][at];
      gradients_[self][range.first + at] = total;
    }
    rounds_[self].shard_summed();
    rounds_[self].shard_released();
    if (range.count == 0) return;
    for (std::size_t other = 0; other < replicas_; ++other) {
      if (other == self) continue;
      rounds_[self].send_started();
      post([this, self, other, range, sums = slice(self, range)] {
        std::copy(sums.begin(), sums.end(), gradients_[other].begin() + static_cast<std::ptrdiff_t>(range.first));
        rounds_[other].sum_arrived();
        rounds_[self].send_done();
        advance(other);
      });
    }
  }

  std::mt19937_64 random_;
  std::size_t replicas_;
  std::size_t elements_;
  std::vector<std::vector<std::vector<float>>> parts_;  // [owner][sender]
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> initial_;
  std::vector<ReductionRound> rounds_;
  std::vector<std::function<void()>> events_;
};

TEST(ReductionRound, all_replicas_end_with_the_same_bits_whatever_the_order_of_messages) {  // RD-2, RD-3, RD-4
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const std::size_t replicas = 1 + seed % 5;
    const std::size_t elements = seed * 7 % 90 + 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(replicas) + " replicas");
    Exchange exchange(seed, replicas, elements);
    exchange.run();
    exchange.check();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace maestro
