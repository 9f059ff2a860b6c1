// SPDX-License-Identifier: Apache-2.0
// Compares every collective of a thread group with a computation in a single thread from all ranks' arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/collective/collective_share.hpp"
#include "runtime/collective/thread_group.hpp"
#include "tests/collective/collective_checks.hpp"
#include "tests/collective/rank_threads.hpp"

namespace maestro {
namespace {

class OfRanks : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(ThreadGroup, OfRanks, testing::Values(1, 2, 3, 4, 5));

TEST_P(OfRanks, sums_are_those_of_rank_order_on_every_rank) {  // CM-1, GS-2
  const Group group = make_thread_group(GetParam());
  for (const std::size_t count : {0u, 1u, 7u, 16u, 100u, 1024u, 12345u}) {
    on_all_ranks(group, [&](Communicator& rank) { check_sum(rank, 1, count); });
  }
}

TEST_P(OfRanks, shards_hold_the_sums_and_come_together) {  // CM-1
  const Group group = make_thread_group(GetParam());
  for (const std::size_t count : {0u, 1u, 7u, 16u, 100u, 1024u, 12345u}) {
    on_all_ranks(group, [&](Communicator& rank) { check_shards(rank, 4, count); });
  }
}

TEST_P(OfRanks, maxima_are_elementwise) {
  const Group group = make_thread_group(GetParam());
  for (const std::size_t count : {0u, 1u, 33u, 5000u}) {
    on_all_ranks(group, [&](Communicator& rank) { check_max(rank, 2, count); });
  }
}

const std::vector<RowCase> row_cases = {{.rows = 60, .columns = 8},    {.rows = 61, .columns = 33},
                                        {.rows = 3, .columns = 700},   {.rows = 1, .columns = 5},
                                        {.rows = 0, .columns = 4},     {.rows = 9, .columns = 0},
                                        {.rows = 300, .columns = 129}, {.rows = 7, .columns = 16, .uneven = true}};

TEST_P(OfRanks, gathered_rows_are_the_parts_in_rank_order) {
  const Group group = make_thread_group(GetParam());
  for (RowCase at : row_cases) {
    for (const bool in_place : {false, true}) {
      at.in_place = in_place;
      on_all_ranks(group, [&](Communicator& rank) {
        check_gather<float>(rank, at);
        check_gather<bfloat16>(rank, at);
        check_gather<std::int32_t>(rank, at);
      });
    }
  }
}

TEST_P(OfRanks, scattered_rows_are_sums_rounded_once) {  // CM-1
  const Group group = make_thread_group(GetParam());
  for (const RowCase& at : row_cases) {
    on_all_ranks(group, [&](Communicator& rank) {
      check_reduce_scatter<float>(rank, at);
      check_reduce_scatter<bfloat16>(rank, at);
    });
  }
}

TEST_P(OfRanks, blocks_go_from_rows_to_columns) {
  const Group group = make_thread_group(GetParam());
  for (const RowCase& at : row_cases) {
    on_all_ranks(group, [&](Communicator& rank) {
      check_exchange<float>(rank, at);
      check_exchange<bfloat16>(rank, at);
      check_exchange<std::int32_t>(rank, at);
    });
  }
}

TEST_P(OfRanks, the_kth_block_sent_fills_the_kth_received) {
  const Group group = make_thread_group(GetParam());
  on_all_ranks(group, [&](Communicator& rank) {
    const std::int64_t size = rank.size();
    std::vector<std::int32_t> own = {static_cast<std::int32_t>(rank.rank() * 10),
                                     static_cast<std::int32_t>(rank.rank() * 10 + 1)};
    std::vector<BlockTransfer> sends, receives;
    // Sends element 1 first, then element 0 twice: sends may overlap.
    for (const std::int64_t row : {1, 0, 0}) {
      for (std::int64_t peer = 0; peer < size; ++peer) sends.push_back({peer, {row, 1, 0, 1}});
    }
    for (std::int64_t peer = size - 1; peer >= 0; --peer) {
      for (const std::int64_t column : {2, 0, 1}) receives.push_back({peer, {peer, 1, column, 1}});
    }
    std::vector<std::int32_t> received(static_cast<std::size_t>(size * 3), -1);
    rank.exchange(tensor_of(own, 2, 1), sends, tensor_of(received, size, 3), receives);
    for (std::int32_t peer = 0; peer < size; ++peer) {
      const auto* row = &received[static_cast<std::size_t>(peer * 3)];
      EXPECT_EQ(row[2], peer * 10 + 1);
      EXPECT_EQ(row[0], peer * 10);
      EXPECT_EQ(row[1], peer * 10);
    }
  });
}

TEST_P(OfRanks, whole_rows_fill_part_of_wider_rows_and_columns_fill_whole_rows) {
  const Group group = make_thread_group(GetParam());
  on_all_ranks(group, [&](Communicator& rank) {
    const std::int64_t next = (rank.rank() + 1) % rank.size();
    const std::int64_t previous = (rank.rank() + rank.size() - 1) % rank.size();
    const auto from = static_cast<std::int32_t>(10 * previous);
    std::vector<std::int32_t> narrow(4), wide(6, -1);  // 2 x 2 and 2 x 3
    for (std::int32_t at = 0; at < 4; ++at)
      narrow[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(10 * rank.rank()) + at;
    rank.exchange(tensor_of(narrow, 2, 2), std::vector<BlockTransfer>{{next, {0, 2, 0, 2}}}, tensor_of(wide, 2, 3),
                  std::vector<BlockTransfer>{{previous, {0, 2, 1, 2}}});
    EXPECT_EQ(wide, (std::vector<std::int32_t>{-1, from, from + 1, -1, from + 2, from + 3}));
    std::vector<std::int32_t> back(4);
    rank.exchange(tensor_of(wide, 2, 3), std::vector<BlockTransfer>{{previous, {0, 2, 1, 2}}}, tensor_of(back, 2, 2),
                  std::vector<BlockTransfer>{{next, {0, 2, 0, 2}}});
    EXPECT_EQ(back, narrow);
  });
}

TEST_P(OfRanks, what_no_block_names_is_left_as_it_was) {
  const Group group = make_thread_group(GetParam());
  on_all_ranks(group, [&](Communicator& rank) {
    std::vector<float> own(12, static_cast<float>(rank.rank()));
    std::vector<float> target(12, -1.0f);
    const std::int64_t next = (rank.rank() + 1) % rank.size();
    const std::int64_t previous = (rank.rank() + rank.size() - 1) % rank.size();
    const std::vector<BlockTransfer> sends = {{next, {1, 2, 1, 2}}};
    const std::vector<BlockTransfer> receives = {{previous, {0, 2, 2, 2}}};
    rank.exchange(tensor_of(own, 3, 4), sends, tensor_of(target, 3, 4), receives);
    const auto is = static_cast<float>(previous);
    EXPECT_EQ(target, (std::vector<float>{-1, -1, is, is, -1, -1, is, is, -1, -1, -1, -1}));
  });
}

TEST(ThreadGroup, a_part_beside_its_whole_and_empty_blocks_of_other_shapes_are_in_order) {
  const Group group = make_thread_group(2);
  on_all_ranks(group, [](Communicator& rank) {
    std::vector<float> memory(12, 1.0f);  // a 4 x 2 input directly followed by its 2 x 2 part
    rank.reduce_scatter_rows({memory.data(), DType::f32, Shape{4, 2}}, {memory.data() + 8, DType::f32, Shape{2, 2}});
    EXPECT_EQ(memory.back(), 2.0f);
    const std::int64_t other = 1 - rank.rank();
    std::vector<float> own(4), target(4);
    const std::vector<BlockTransfer> sends = {{other, {0, 0, 0, 2}}}, receives = {{other, {0, 2, 0, 0}}};
    rank.exchange(tensor_of(own, 2, 2), sends, tensor_of(target, 2, 2), receives);
  });
}

TEST(ThreadGroup, sums_are_formed_from_rank_0_upwards) {       // CM-1
  const std::vector<float> terms = {1e8f, 1.0f, -1e8f, 1.0f};  // the sum is 1 in this order, 2 or 0 in most others
  const Group group = make_thread_group(4);
  on_all_ranks(group, [&](Communicator& rank) {
    std::vector<float> values(40, terms[static_cast<std::size_t>(rank.rank())]);
    rank.all_reduce_sum(values);
    EXPECT_EQ(values, std::vector<float>(40, 1.0f));
    std::vector<float> whole(40, terms[static_cast<std::size_t>(rank.rank())]), part(10);
    rank.reduce_scatter_rows(tensor_of(whole, 8, 5), tensor_of(part, 2, 5));
    EXPECT_EQ(part, std::vector<float>(10, 1.0f));
  });
}

TEST(ThreadGroup, a_sum_in_bf16_is_rounded_once) {  // CM-1
  // 256 + 1 + 1 + 1: with bf16's 8 bits, 256 + 1 would round to 256 at each step; 259 rounds to 260 at the end.
  const Group group = make_thread_group(4);
  on_all_ranks(group, [&](Communicator& rank) {
    std::vector<bfloat16> whole(4, bfloat16(rank.rank() == 0 ? 256.0f : 1.0f)), part(1);
    rank.reduce_scatter_rows(tensor_of(whole, 4, 1), tensor_of(part, 1, 1));
    EXPECT_EQ(static_cast<float>(part[0]), 260.0f);
  });
}

TEST(ThreadGroup, a_maximum_keeps_the_nan_of_any_rank) {
  for (std::int64_t bad = 0; bad < 3; ++bad) {
    const Group group = make_thread_group(3);
    on_all_ranks(group, [&](Communicator& rank) {
      std::vector<float> values(20, static_cast<float>(rank.rank()));
      if (rank.rank() == bad) values[5] = std::numeric_limits<float>::quiet_NaN();
      rank.all_reduce_max(values);
      EXPECT_TRUE(std::isnan(values[5]));
      EXPECT_EQ(values[6], 2.0f);
    });
  }
}

TEST(ThreadGroup, a_group_of_one_copies_its_own_data_and_never_waits) {  // CM-3
  const Group group = make_thread_group(1);
  Communicator& only = *group[0];  // on this thread: a call that waited for another would not return
  std::vector<float> values = {1, 2, 3, 4, 5, 6}, copy(6), turned(6);
  only.all_reduce_sum(values);
  only.all_reduce_max(values);
  only.reduce_to_shards(values);
  only.gather_shards(values);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  only.all_gather_rows(tensor_of(values, 3, 2), tensor_of(copy, 3, 2));
  EXPECT_EQ(copy, values);
  std::fill(copy.begin(), copy.end(), 0.0f);
  only.reduce_scatter_rows(tensor_of(values, 3, 2), tensor_of(copy, 3, 2));
  EXPECT_EQ(copy, values);
  const std::vector<BlockTransfer> sends = {{0, {1, 2, 0, 2}}, {0, {0, 1, 0, 2}}};
  const std::vector<BlockTransfer> receives = {{0, {0, 2, 0, 2}}, {0, {2, 1, 0, 2}}};
  only.exchange(tensor_of(values, 3, 2), sends, tensor_of(turned, 3, 2), receives);
  EXPECT_EQ(turned, (std::vector<float>{3, 4, 5, 6, 1, 2}));
}

/// Returns the values of three ranks after all have added their shares to `kind`, in this order.
std::vector<std::vector<float>> shares_in_order(CollectiveKind kind, const std::vector<std::int64_t>& order) {
  std::vector<std::vector<float>> values;
  std::vector<CollectiveCall> calls;
  for (std::size_t rank = 0; rank < order.size(); ++rank) values.push_back(values_of<float>(6, rank, 100));
  for (std::vector<float>& own : values) calls.push_back({.kind = kind, .values = own});
  for (const std::int64_t rank : order) perform_share(calls, rank);
  return values;
}

TEST(CollectiveShare, the_shares_of_a_collective_may_run_in_any_order) {  // GS-1
  for (const CollectiveKind kind : {CollectiveKind::all_reduce_sum, CollectiveKind::all_reduce_max,
                                    CollectiveKind::reduce_to_shards, CollectiveKind::gather_shards}) {
    const auto expected = shares_in_order(kind, {0, 1, 2});
    for (const std::vector<std::int64_t>& order : {std::vector<std::int64_t>{2, 1, 0}, {1, 2, 0}, {2, 0, 1}}) {
      const auto found = shares_in_order(kind, order);
      for (std::size_t rank = 0; rank < 3; ++rank) {
        EXPECT_TRUE(same_bits(found[rank], expected[rank])) << name_of(kind) << " on rank " << rank;
      }
    }
  }
}

TEST(ThreadGroup, ranks_are_counted_and_end_in_any_order) {
  EXPECT_THROW((void)make_thread_group(0), std::invalid_argument);
  Group group = make_thread_group(3, 64);
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group[static_cast<std::size_t>(rank)]->rank(), rank);
    EXPECT_EQ(group[static_cast<std::size_t>(rank)]->size(), 3);
  }
  on_all_ranks(group, [](Communicator& rank) { check_sum(rank, 3, 100); });
  group[0].reset();
  group[2]->abort("the others go");
  EXPECT_THROW(group[1]->all_reduce_sum({}), CommunicatorAborted);
}

/// Calls one collective from a random sequence that is equal on all ranks.
void check_any(Communicator& group, std::uint32_t step, std::minstd_rand& random) {
  const auto kind = random() % 6;
  const RowCase at = {.seed = step,
                      .rows = static_cast<std::int64_t>(random() % 12),
                      .columns = static_cast<std::int64_t>(random() % 9),
                      .uneven = random() % 4 == 0,
                      .in_place = random() % 2 == 0};
  const auto count = static_cast<std::size_t>(random() % 130);
  if (kind == 0) return check_sum(group, step, count);
  if (kind == 1) return check_max(group, step, count);
  if (kind == 5) return check_shards(group, step, count);
  if (kind == 2) return check_gather<bfloat16>(group, at);
  if (kind == 3)
    return random() % 2 == 0 ? check_reduce_scatter<float>(group, at) : check_reduce_scatter<bfloat16>(group, at);
  return check_exchange<std::int32_t>(group, at);
}

TEST(ThreadGroup, thousands_of_mixed_collectives_stay_in_step) {
  for (const std::int64_t device_threads : {4, 1024}) {  // with four cores, spinning and sleeping
    const Group group = make_thread_group(4, device_threads);
    on_all_ranks(group, [](Communicator& rank) {
      std::minstd_rand random(20240611);
      for (std::uint32_t step = 0; step < 2000; ++step) check_any(rank, step, random);
    });
  }
}

}  // namespace
}  // namespace maestro
