// SPDX-License-Identifier: Apache-2.0
// ReplicaLane with random orders of work items, arrivals and free buffers.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "tests/schedule/lane_batches.hpp"
#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;
using Kind = ReplicaLane::Kind;

/// Gives a lane work items, arrivals and free buffers in random order and checks the passes that it runs.
class RandomLane {
 public:
  explicit RandomLane(std::uint64_t seed)
      : random_(seed),
        awaits_(random_() % 2 == 0),
        trained_(awaits_ || random_() % 2 == 0),
        max_in_flight_(draw(random_, 1, 3)),
        devices_(static_cast<std::uint32_t>(draw(random_, 1, 3))),
        lane_({trained_, awaits_, max_in_flight_}) {
    std::uint32_t index = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const Pass pass = random_() % 3 == 0 ? Pass::evaluate : Pass::train;
      const std::int64_t count = draw(random_, 0, 5);
      std::vector<std::uint32_t> ranks;
      for (std::uint32_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
      const bool splits = awaits_ && pass == Pass::train;
      if (splits && max_in_flight_ > 1 && ranks.size() > 1) std::swap(ranks[0], ranks[1]);
      const std::uint32_t first = index;
      order_.resize(first + ranks.size());
      for (const std::uint32_t rank : ranks) {
        order_[first + rank] = index;
        tokens_.push_back({batch_of(index, awaits_, pass, devices_), 0});
        tokens_.back().batch.backward_order = rank;
        send(input, index++);
      }
      tokens_.push_back({{}, step});
    }
    batches_ = index;
  }

  void run() {
    for (int turn = 0; turn < 4000 && !(tokens_.empty() && lane_.idle()); ++turn) {
      switch (random_() % 4) {
        case 0:
          enqueue_token();
          break;
        case 1:
          deliver_arrival();
          break;
        case 2:
          start();
          break;
        default:
          if (lane_.busy()) finish();
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(tokens_.empty() && lane_.idle());
    EXPECT_EQ(retired_, batches_);  // nothing lost
    EXPECT_EQ(marks_, 5u);
  }

 private:
  struct Token {
    MicroBatchPlan batch;
    std::uint64_t mark = 0;
  };
  void enqueue_token() {
    if (tokens_.empty()) return;
    if (tokens_.front().mark > 0) {
      lane_.enqueue(end_of(tokens_.front().mark));
      batches_before_mark_.push_back(enqueued_);
    } else {
      lane_.enqueue(tokens_.front().batch);
      ++enqueued_;
    }
    tokens_.pop_front();
  }
  void send(Channel channel, std::uint32_t sequence) {
    for (std::uint32_t device = 0; device < devices_; ++device) arrivals_.push_back({channel, sequence, device});
  }
  [[nodiscard]] bool is_here(Channel channel, std::uint32_t sequence) const {
    const auto found = here_.find({channel, sequence});
    return found != here_.end() && found->second == devices_;
  }
  void deliver_arrival() {
    if (arrivals_.empty()) return;
    std::swap(arrivals_.front(), arrivals_[random_() % arrivals_.size()]);
    const auto [channel, sequence, device] = arrivals_.front();
    lane_.arrived(channel, sequence, LayoutRank(device));
    ++here_[{channel, sequence}];
    arrivals_.pop_front();
  }
  void start() {
    const BuffersFree free{random_() % 4 != 0, random_() % 4 != 0};
    const auto work = lane_.next(free);
    if (!work) return;
    kind_ = work->kind;
    if (kind_ == Kind::mark) {
      ASSERT_EQ(work->mark.step.value(), marks_ + 1);
      ASSERT_EQ(retired_, batches_before_mark_[marks_]);  // RL-4
      return;
    }
    running_ = work->batch->index;
    pass_ = work->batch->pass;
    const bool forward = kind_ != Kind::backward;
    ASSERT_EQ(running_, forward ? forwarded_ : order_[retired_]);  // RL-1, RL-3
    ASSERT_TRUE(is_here(forward ? input : gradient_of_output, running_));
    if (forward) {
      ASSERT_TRUE(free.outputs);
      ASSERT_LT(forwarded_ - retired_, max_in_flight_);  // RL-2
      const bool backward_ready =
          forwarded_ > retired_ && order_[retired_] < forwarded_ && is_here(gradient_of_output, order_[retired_]);
      ASSERT_FALSE(backward_ready && free.gradients);  // RL-3
    }
    if (kind_ != Kind::forward) {
      ASSERT_TRUE(free.gradients);
      ASSERT_EQ(pass_, Pass::train);
      ASSERT_TRUE(trained_);
    }
  }
  void finish() {
    const auto retired = lane_.finished();
    if (kind_ == Kind::mark) {
      ASSERT_FALSE(retired);
      ++marks_;
      return;
    }
    if (kind_ != Kind::backward) ++forwarded_;
    const bool kept = kind_ == Kind::forward && awaits_ && pass_ == Pass::train;
    ASSERT_EQ(retired != nullptr, !kept);
    if (kept) {
      send(gradient_of_output, running_);
      return;
    }
    ASSERT_EQ(retired->index, order_[retired_]);
    ++retired_;
  }

  Generator random_;
  bool awaits_;
  bool trained_;
  std::int64_t max_in_flight_;
  std::uint32_t devices_;  // ranks of the replica
  ReplicaLane lane_;
  std::deque<Token> tokens_;
  std::deque<std::tuple<Channel, std::uint32_t, std::uint32_t>> arrivals_;  // edge, sequence, rank
  std::map<std::pair<Channel, std::uint32_t>, std::uint32_t> here_;         // number of ranks with the arrival
  std::vector<std::uint32_t> batches_before_mark_;
  std::vector<std::uint32_t> order_;  // order of retiring micro-batches
  Kind kind_ = Kind::mark;
  Pass pass_ = Pass::train;
  std::uint32_t running_ = 0;
  std::uint32_t enqueued_ = 0;
  std::uint32_t forwarded_ = 0;
  std::uint32_t retired_ = 0;
  std::uint32_t batches_ = 0;
  std::uint64_t marks_ = 0;
};

TEST(ReplicaLane, every_random_schedule_keeps_the_order_and_ends) {  // RL-1, RL-2, RL-3, RL-4
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomLane lane(seed);
    lane.run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace maestro
