// SPDX-License-Identifier: Apache-2.0
// Failures of a rank, and mismatched calls of ranks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>

#include "runtime/collective/abort_reason.hpp"
#include "runtime/collective/group_barrier.hpp"
#include "runtime/collective/thread_group.hpp"
#include "tests/collective/rank_threads.hpp"

namespace maestro {
namespace {

class Owned {
 public:
  Owned(std::int64_t rows, std::int64_t columns, DType dtype = DType::f32)
      : memory_(static_cast<std::size_t>(rows * columns) * size_of(dtype) + 1),
        tensor_(memory_.data(), dtype, Shape{rows, columns}) {}
  operator const Tensor&() const { return tensor_; }  // NOLINT: reads as the tensor it is
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

std::vector<std::pair<const char*, std::function<void(Communicator&)>>> every_operation() {
  return {
      {"all_reduce_sum",
       [](Communicator& rank) {
         std::vector<float> values(3);
         rank.all_reduce_sum(values);
       }},
      {"all_reduce_max",
       [](Communicator& rank) {
         std::vector<float> values(3);
         rank.all_reduce_max(values);
       }},
      {"all_gather_rows", [](Communicator& rank) { rank.all_gather_rows(Owned(1, 2), Owned(rank.size(), 2)); }},
      {"reduce_scatter_rows", [](Communicator& rank) { rank.reduce_scatter_rows(Owned(rank.size(), 2), Owned(1, 2)); }},
      {"exchange", [](Communicator& rank) { rank.exchange(Owned(1, 1), {}, Owned(1, 1), {}); }}};
}

TEST(CommunicatorFailure, abort_wakes_whoever_waits) {  // CM-2
  for (const auto& named : every_operation()) {
    const std::string name = named.first;
    for (int round = 0; round < 50; ++round) {
      const Group group = make_thread_group(3);
      std::atomic<int> calling = 0;
      std::vector<std::string> texts(2);
      std::vector<std::thread> waiting;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        waiting.emplace_back([&, rank] {
          try {
            ++calling;
            named.second(*group[rank]);
          } catch (const CommunicatorAborted& error) {
            texts[rank] = error.what();
          }
        });
      }
      // Rank 2 never calls, so no call can return. Later rounds leave the other ranks more time to fall asleep.
      while (calling < 2) std::this_thread::yield();
      for (int turn = 0; turn < 20 * round; ++turn) std::this_thread::yield();
      group[2]->abort("the disk is full");
      for (std::thread& thread : waiting) thread.join();
      EXPECT_EQ(texts[1], name + " on rank 1 of 3: the group was aborted: the disk is full");
      EXPECT_EQ(texts[0], name + " on rank 0 of 3: the group was aborted: the disk is full");
    }
  }
}

TEST(CommunicatorFailure, every_later_call_of_every_rank_throws_at_once) {  // CM-2
  for (const std::int64_t ranks : {1, 3}) {
    const Group group = make_thread_group(ranks);
    group[0]->abort("first");
    group.back()->abort("second");
    for (const auto& rank : group) {
      for (const auto& [name, operation] : every_operation()) {
        try {
          operation(*rank);
          ADD_FAILURE() << name << " returned";
        } catch (const CommunicatorAborted& error) {
          EXPECT_NE(std::string(error.what()).find("aborted: first"), std::string::npos) << error.what();
        }
      }
    }
  }
}

TEST(CommunicatorFailure, a_rank_that_aborts_amid_collectives_stops_all_others) {  // CM-2, TG-3
  for (int last = 0; last < 40; ++last) {
    const Group group = make_thread_group(4);
    const auto failures = failures_on(group, [&](Communicator& rank) {
      for (int step = 0;; ++step) {
        std::vector<float> values(100, 1.0f);  // freed when the call throws: then no rank may read them
        if (rank.rank() == 1 && step == last) throw std::runtime_error("out of memory");
        rank.all_reduce_sum(values);
      }
    });
    EXPECT_EQ(text_of<std::runtime_error>(failures[1]), "out of memory");
    for (const std::size_t rank : {0u, 2u, 3u}) {
      const std::string text = text_of<CommunicatorAborted>(failures[rank]);
      EXPECT_NE(text.find("rank 1 has failed"), std::string::npos) << text;
    }
  }
}

TEST(CommunicatorFailure, a_collective_that_a_rank_never_enters_leaves_all_results_as_they_were) {  // TG-1
  const Group group = make_thread_group(3);
  const auto failures = failures_on(group, [](Communicator& rank) {
    if (rank.rank() == 2) return rank.abort("no memory");
    std::vector<float> values(40, 1.0f), whole(9, -1.0f);
    EXPECT_THROW(rank.all_reduce_sum(values), CommunicatorAborted);
    EXPECT_EQ(values, std::vector<float>(40, 1.0f));
    const Tensor part(values.data(), DType::f32, Shape{1, 3});
    EXPECT_THROW(rank.all_gather_rows(part, Tensor(whole.data(), DType::f32, Shape{3, 3})), CommunicatorAborted);
    EXPECT_EQ(whole, std::vector<float>(9, -1.0f));
  });
  for (const std::exception_ptr& failure : failures) EXPECT_FALSE(failure);
}

TEST(CommunicatorFailure, calls_that_do_not_fit_together_touch_no_values) {  // TG-2
  const Group group = make_thread_group(3);
  on_all_ranks(group, [](Communicator& rank) {
    std::vector<float> values(rank.rank() == 1 ? 30 : 40, static_cast<float>(rank.rank()));
    const std::vector<float> before = values;
    EXPECT_THROW(rank.all_reduce_sum(values), std::logic_error);
    EXPECT_EQ(values, before);
  });
}

TEST(GroupBarrier, no_rank_leaves_before_all_have_entered) {  // GB-1
  constexpr std::size_t ranks = 3, rounds = 60;
  for (const int spins : {0, 50}) {
    GroupBarrier barrier(ranks, spins);
    std::array<std::size_t, ranks> entered{};  // not atomic: the barrier orders writes and reads
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        for (std::size_t round = 1; round <= rounds; ++round) {
          entered[rank] = round;
          EXPECT_TRUE(barrier.open());
          for (const std::size_t of_peer : entered) EXPECT_EQ(of_peer, round);
          barrier.meet();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(GroupBarrier, an_abort_is_before_or_after_the_meeting_for_all) {  // GB-2, GB-3
  int opened = 0;
  for (int round = 0; round < 300; ++round) {
    GroupBarrier barrier(3, round % 2 * 50);
    std::array<bool, 3> open{};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        open[rank] = barrier.open();
        if (open[rank]) barrier.meet();
      });
    }
    for (int turn = 0; turn < round; ++turn) std::this_thread::yield();
    barrier.abort();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(open[0] == open[1] && open[1] == open[2]);
    EXPECT_FALSE(barrier.open());
    opened += open[0] ? 1 : 0;
  }
  RecordProperty("met_before_the_abort", opened);
}

/// A call that rank `odd` makes differently, and the error that names the difference.
struct Mismatch {
  const char* name;
  std::function<void(Communicator&, bool odd)> call;
  const char* text;
};

std::vector<BlockTransfer> to_all(std::int64_t ranks, TensorBlock block) {
  std::vector<BlockTransfer> transfers;
  for (std::int64_t peer = 0; peer < ranks; ++peer) transfers.push_back({peer, block});
  return transfers;
}

std::vector<Mismatch> reduction_mismatches() {
  return {{"operation",
           [](Communicator& rank, bool odd) {
             std::vector<float> values(4);
             odd ? rank.all_reduce_max(values) : rank.all_reduce_sum(values);
           },
           "all_reduce_max: rank 1 calls it while rank 0 calls all_reduce_sum"},
          {"length",
           [](Communicator& rank, bool odd) {
             std::vector<float> values(odd ? 5000 : 4);
             rank.all_reduce_sum(values);
           },
           "all_reduce_sum: rank 1 has 5000 values, rank 0 has 4"},
          {"scatter_overlap",
           [](Communicator& rank, bool odd) {
             const Owned whole(3, 2), part(1, 2);
             rank.reduce_scatter_rows(whole, odd ? whole.tensor().row_slice(1, 1) : part.tensor());
           },
           "reduce_scatter_rows: rank 1 has its part inside its full tensor"},
          {"scatter_dtype",
           [](Communicator& rank, bool) { rank.reduce_scatter_rows(Owned(3, 2, DType::i32), Owned(1, 2, DType::i32)); },
           "reduce_scatter_rows: rank 0 has i32; only fp32 and bf16 can be added"},
          {"scatter_rows",
           [](Communicator& rank, bool odd) { rank.reduce_scatter_rows(Owned(odd ? 4 : 3, 2), Owned(1, 2)); },
           "reduce_scatter_rows: rank 1 has 4 rows in its full tensor, rank 0 has 3"}};
}

std::vector<Mismatch> gather_mismatches() {
  return {
      {"gather_columns",
       [](Communicator& rank, bool odd) { rank.all_gather_rows(Owned(1, odd ? 8 : 2), Owned(3, odd ? 8 : 2)); },
       "all_gather_rows: rank 1 has 8 columns, rank 0 has 2"},
      {"gather_own_columns",
       [](Communicator& rank, bool odd) { rank.all_gather_rows(Owned(1, odd ? 8 : 2), Owned(3, 2)); },
       "all_gather_rows: rank 1 goes from 8 columns to 2"},
      {"gather_dtype",
       [](Communicator& rank, bool odd) {
         const DType dtype = odd ? DType::bf16 : DType::f32;
         rank.all_gather_rows(Owned(1, 2, dtype), Owned(3, 2, dtype));
       },
       "all_gather_rows: rank 1 has bf16 elements, rank 0 has fp32"},
      {"gather_own_dtype",
       [](Communicator& rank, bool odd) {
         rank.all_gather_rows(Owned(1, 2, odd ? DType::i64 : DType::f32), Owned(3, 2));
       },
       "all_gather_rows: rank 1 goes from i64 to fp32"},
      {"gather_rows", [](Communicator& rank, bool odd) { rank.all_gather_rows(Owned(odd ? 2 : 1, 2), Owned(3, 2)); },
       "all_gather_rows: the parts of all ranks have 4 rows, but the full tensor of rank 0 has 3"},
      {"gather_place",
       [](Communicator& rank, bool odd) {
         const Owned whole(3, 2);
         rank.all_gather_rows(whole.tensor().row_slice(odd ? 0 : rank.rank(), 1), whole);
       },
       "all_gather_rows: rank 1 has its part inside its full tensor, but not at its row 1"},
      {"gather_memory",
       [](Communicator& rank, bool odd) {
         const Owned part(1, 2);
         rank.all_gather_rows(odd ? Tensor(nullptr, DType::f32, Shape{1, 2}) : part.tensor(), Owned(3, 2));
       },
       "all_gather_rows: rank 1 lacks memory for its tensor (1, 2)"}};
}

std::vector<Mismatch> exchange_mismatches() {
  return {
      {"count",
       [](Communicator& rank, bool odd) {
         auto sends = to_all(3, {0, 1, 0, 1});
         if (odd) sends.push_back({2, {0, 1, 0, 1}});
         rank.exchange(Owned(1, 1), sends, Owned(3, 1),
                       std::vector<BlockTransfer>{{0, {0, 1, 0, 1}}, {1, {1, 1, 0, 1}}, {2, {2, 1, 0, 1}}});
       },
       "exchange: rank 1 sends 2 blocks to rank 2, which receives 1"},
      {"shape",
       [](Communicator& rank, bool odd) {
         const std::vector<BlockTransfer> receives = {{0, {0, 1, 0, 2}}, {1, {1, 1, 0, 2}}, {2, {2, 1, 0, 2}}};
         rank.exchange(Owned(2, 2), to_all(3, odd ? TensorBlock{0, 2, 1, 1} : TensorBlock{0, 1, 0, 2}), Owned(3, 2),
                       receives);
       },
       "exchange: block 0 from rank 1 to rank 0 is 2 x 1 at (0, 1) at the sender and 1 x 2 at (1, 0) at the receiver"},
      {"peer",
       [](Communicator& rank, bool odd) { rank.exchange(Owned(1, 1), to_all(odd ? 4 : 0, {}), Owned(1, 1), {}); },
       "exchange: rank 1 sends to rank 3, the group has 3 ranks"},
      {"bounds",
       [](Communicator& rank, bool odd) {
         const std::vector<BlockTransfer> receives = {
             {0, {0, 1, 0, 1}}, {1, {1, 1, 0, 1}}, {2, {odd ? 3 : 2, 1, 0, 1}}};
         rank.exchange(Owned(1, 1), to_all(3, {0, 1, 0, 1}), Owned(3, 1), receives);
       },
       "exchange: rank 1 receives from rank 2 a block 1 x 1 at (3, 0), its tensor is (3, 1)"},
      {"columns",
       [](Communicator& rank, bool odd) {
         rank.exchange(Owned(2, 2), to_all(odd ? 1 : 0, {0, 1, 1, 2}), Owned(1, 1), {});
       },
       "exchange: rank 1 sends to rank 0 a block 1 x 2 at (0, 1), its tensor is (2, 2)"},
      {"exchange_own_dtype",
       [](Communicator& rank, bool odd) {
         rank.exchange(Owned(1, 1, odd ? DType::i64 : DType::f32), {}, Owned(1, 1), {});
       },
       "exchange: rank 1 goes from i64 to fp32"},
      {"negative",
       [](Communicator& rank, bool odd) {
         rank.exchange(Owned(2, 2), to_all(odd ? 1 : 0, {-1, 1, 0, 1}), Owned(1, 1), {});
       },
       "exchange: rank 1 sends to rank 0 a block 1 x 1 at (-1, 0), its tensor is (2, 2)"},
      {"exchange_dtype",
       [](Communicator& rank, bool odd) {
         const DType dtype = odd ? DType::u8 : DType::i64;
         rank.exchange(Owned(1, 1, dtype), {}, Owned(1, 1, dtype), {});
       },
       "exchange: rank 1 has u8 elements, rank 0 has i64"}};
}

class CommunicatorMismatch : public testing::TestWithParam<Mismatch> {};

TEST_P(CommunicatorMismatch, is_named_on_every_rank_and_ends_the_group) {  // TG-2
  const Mismatch& mismatch = GetParam();
  const Group group = make_thread_group(3);
  const auto once = [&](Communicator& rank) { mismatch.call(rank, rank.rank() == 1); };
  for (const std::exception_ptr& failure : failures_on(group, once)) {
    EXPECT_EQ(text_of<std::logic_error>(failure), mismatch.text);
  }
  for (const std::exception_ptr& failure : failures_on(group, once)) {
    const std::string text = text_of<CommunicatorAborted>(failure);
    EXPECT_NE(text.find(mismatch.text), std::string::npos) << text;
  }
}

const auto name_of_case = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Reduction, CommunicatorMismatch, testing::ValuesIn(reduction_mismatches()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Gather, CommunicatorMismatch, testing::ValuesIn(gather_mismatches()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Exchange, CommunicatorMismatch, testing::ValuesIn(exchange_mismatches()), name_of_case);

TEST(AbortReason, listeners_are_called_once_whenever_they_come) {  // AB-1
  AbortReason reason;
  int early = 0, late = 0, gone = 0;
  const AbortReason::Listener before(reason, [&] { ++early; });
  {
    const AbortReason::Listener ended(reason, [&] { ++gone; });
  }
  EXPECT_EQ(early, 0);
  reason.set("the first");
  reason.set("the second");
  const AbortReason::Listener after(reason, [&] {
    EXPECT_EQ(reason.why(), "the first");
    ++late;
  });
  EXPECT_EQ(early, 1);
  EXPECT_EQ(late, 1);
  EXPECT_EQ(gone, 0);
}

}  // namespace
}  // namespace maestro
