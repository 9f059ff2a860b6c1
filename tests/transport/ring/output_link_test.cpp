// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/output_link.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace maestro {
namespace {

constexpr Epoch epoch(3);

OutgoingPiece piece_of(std::uint64_t sequence, std::uint32_t index = 0, Buffer buffer = {}) {
  OutgoingPiece outgoing;
  outgoing.piece.sequence = sequence;
  outgoing.piece.index = index;
  outgoing.buffer = std::move(buffer);
  return outgoing;
}

/// Returns the sequences of everything that may leave now.
std::vector<std::uint64_t> take_all(OutputLink& link) {
  std::vector<std::uint64_t> sequences;
  while (true) {
    const auto next = link.take();
    EXPECT_TRUE(next.ok());
    if (!next || !next->has_value()) return sequences;
    sequences.push_back((**next).piece.sequence);
  }
}

using Sequences = std::vector<std::uint64_t>;

TEST(OutputLink, pieces_leave_in_order_as_far_as_the_window_reaches) {  // OL-1
  OutputLink link(epoch, 2, 1);
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
    link.queue(piece_of(sequence, 0));
    link.queue(piece_of(sequence, 1));
  }
  EXPECT_EQ(take_all(link), (Sequences{0, 0, 1, 1}));
  EXPECT_EQ(link.waiting(), 4u);
  ASSERT_NE(link.next(), nullptr);
  EXPECT_EQ(link.next()->piece.sequence, 2u);
  ASSERT_TRUE(link.grant(epoch, 1).ok());
  EXPECT_EQ(take_all(link), (Sequences{2, 2}));
  ASSERT_TRUE(link.grant(epoch, 3).ok());
  EXPECT_EQ(take_all(link), (Sequences{3, 3}));
  EXPECT_EQ(link.next(), nullptr);
}

TEST(OutputLink, pieces_of_one_sequence_leave_in_the_order_they_were_queued) {  // OL-1
  OutputLink link(epoch, 3, 1);
  for (const std::uint64_t sequence : {1u, 0u, 2u}) {
    for (const std::uint32_t index : {2u, 0u, 1u}) link.queue(piece_of(sequence, index));
  }
  std::vector<std::uint32_t> indices;
  while (link.waiting() > 0) indices.push_back(link.take()->value().piece.index);
  EXPECT_EQ(indices, (std::vector<std::uint32_t>{2, 0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(OutputLink, a_piece_that_was_made_early_never_stands_before_one_that_is_due) {  // OL-1
  OutputLink link(epoch, 1, 1);
  link.queue(piece_of(2));
  link.queue(piece_of(0));
  link.queue(piece_of(1));
  EXPECT_EQ(take_all(link), Sequences{0});
  ASSERT_TRUE(link.grant(epoch, 1).ok());
  EXPECT_EQ(take_all(link), Sequences{1});
  ASSERT_TRUE(link.grant(epoch, 2).ok());
  EXPECT_EQ(take_all(link), Sequences{2});
}

TEST(OutputLink, a_waiting_piece_holds_its_buffer_and_lets_go_when_it_has_left) {  // OL-2
  BufferPool pool(64, 1);
  OutputLink link(epoch, 1, 1);
  link.queue(piece_of(0));
  link.queue(piece_of(1, 0, pool.acquire()));
  EXPECT_EQ(take_all(link), Sequences{0});
  EXPECT_EQ(pool.available(), 0u);
  ASSERT_TRUE(link.grant(epoch, 1).ok());
  EXPECT_EQ(take_all(link), Sequences{1});
  EXPECT_EQ(pool.available(), 1u);
}

TEST(OutputLink, the_only_sender_of_a_ring_refuses_a_grant_of_what_it_never_sent) {  // CL-4
  OutputLink link(epoch, 2, 1);
  link.queue(piece_of(0));
  EXPECT_EQ(take_all(link), Sequences{0});
  EXPECT_EQ(link.grant(epoch, 2).error().code, ErrorCode::corrupt);
}

TEST(OutputLink, grants_count_what_the_other_senders_of_the_ring_have_sent) {
  OutputLink link(epoch, 2, 3);
  link.queue(piece_of(5));
  EXPECT_EQ(take_all(link), Sequences());
  ASSERT_TRUE(link.grant(epoch, 3).ok());
  EXPECT_EQ(take_all(link), Sequences());
  ASSERT_TRUE(link.grant(epoch, 5).ok());  // beyond this link's window [3, 5)
  EXPECT_EQ(take_all(link), Sequences{5});
}

TEST(OutputLink, a_grant_far_beyond_the_window_is_no_mistake_where_others_send) {
  OutputLink link(epoch, 1, 2);
  link.queue(piece_of(1000));
  ASSERT_TRUE(link.grant(epoch, 1000).ok());
  EXPECT_EQ(take_all(link), Sequences{1000});
}

TEST(OutputLink, a_grant_of_another_epoch_changes_nothing_and_ends) {  // CL-3
  for (const std::int64_t senders : {1, 2}) {
    OutputLink link(epoch, 2, senders);
    for (std::uint64_t sequence = 0; sequence < 3; ++sequence) link.queue(piece_of(sequence));
    ASSERT_TRUE(link.grant(Epoch(2), 99).ok());
    EXPECT_EQ(take_all(link), (Sequences{0, 1}));
  }
}

TEST(OutputLink, senders_that_share_a_ring_never_overfill_it_and_bring_everything) {  // OL-1, CL-1
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto slots = static_cast<std::uint32_t>(1 + random() % 3);
    const std::size_t senders = 2 + random() % 2;
    constexpr std::uint64_t count = 40;
    std::vector<OutputLink> links(senders, OutputLink(epoch, slots, static_cast<std::int64_t>(senders)));
    for (std::uint64_t sequence = 0; sequence < count; ++sequence) links[random() % senders].queue(piece_of(sequence));
    ReleaseLedger consumer(slots);
    std::vector<std::vector<std::uint64_t>> grants(senders);  // pending grants by sender
    std::set<std::uint64_t> in_use;
    for (int turn = 0; turn < 4000 && consumer.released() < count; ++turn) {
      const std::size_t sender = random() % senders;
      for (const std::uint64_t sequence : take_all(links[sender])) {
        ASSERT_LT(sequence, consumer.released() + slots);
        ASSERT_TRUE(in_use.insert(sequence).second);
      }
      ASSERT_LE(in_use.size(), slots);
      if (!in_use.empty() && random() % 2 == 0) {
        auto released = in_use.begin();
        std::advance(released, random() % in_use.size());
        ASSERT_TRUE(consumer.release(*released));
        in_use.erase(released);
        for (auto& queue : grants) queue.push_back(consumer.released());
      }
      auto& queue = grants[random() % senders];
      const auto at = static_cast<std::size_t>(&queue - grants.data());
      while (!queue.empty() && random() % 3 != 0) {
        const std::size_t chosen = random() % queue.size();
        ASSERT_TRUE(links[at].grant(epoch, queue[chosen]).ok());
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    EXPECT_EQ(consumer.released(), count) << "stuck";
  }
}

}  // namespace
}  // namespace maestro
