// SPDX-License-Identifier: Apache-2.0
// The list of parameters by their holders.
#include "sections/parameter_holders.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collective/thread_group.hpp"
#include "sections/section_ranks.hpp"

namespace maestro::testing {
namespace {

/// The parameters of a replica's ranks: one with each holding.
class HeldParameters {
 public:
  static constexpr std::int64_t rows = 8;
  explicit HeldParameters(const Layout& layout) : ranks_(static_cast<std::size_t>(layout.ranks())) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      contexts_.push_back({layout, static_cast<std::int64_t>(rank)});
      const RowRange part = row_part(rows, layout.tensor, contexts_[rank].tensor());
      const ParameterSlice cut = layout.tensor == 1 ? ParameterSlice() : ParameterSlice{{{part.first, part.count}}, {}};
      for (const bool decayed : {true, false}) {
        const std::string kind = decayed ? "decayed" : "other";
        ranks_[rank].add({kind + " cut", Shape{rows}, decayed, {}, cut});
        ranks_[rank].add({kind + " all", Shape{rows}, decayed, {}});
        ranks_[rank].add({kind + " experts", Shape{rows}, decayed, {}, own_experts(contexts_[rank], rows, 1)});
      }
      ranks_[rank].allocate(true);
    }
    for (const RankGroup& group : rank_groups(layout)) {
      std::int64_t rank = group.first;
      for (std::unique_ptr<Communicator>& made : make_thread_group(group.size)) {
        contexts_[static_cast<std::size_t>(rank)].*group.member = groups_.emplace_back(std::move(made)).get();
        rank += group.stride;
      }
    }
  }
  [[nodiscard]] std::size_t ranks() const { return ranks_.size(); }
  [[nodiscard]] Parameters& of(std::size_t rank) { return ranks_[rank]; }
  [[nodiscard]] const ParallelContext& context(std::size_t rank) const { return contexts_[rank]; }
  void sum() {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] { sum_over_holders(ranks_[rank], contexts_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  /// Calls use(rank, parameter, row of the unsharded parameter, place here) for each element on each rank.
  void for_each(const std::function<void(std::size_t, Parameter&, std::int64_t, std::size_t)>& use) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      for (Parameter& parameter : ranks_[rank].all()) {
        for (const Parameter::Run& run : parameter.runs()) {
          for (std::int64_t row = 0; row < run.rows; ++row) {
            use(rank, parameter, run.whole_row + row, static_cast<std::size_t>(run.row + row));
          }
        }
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Communicator>> groups_;
  std::vector<ParallelContext> contexts_;
  std::deque<Parameters> ranks_;
};

TEST(ParameterHolders, gradients_are_summed_over_exactly_the_ranks_that_hold_them) {  // EM-2
  for (const Layout& layout : {Layout{}, Layout{2, 1}, Layout{1, 3}, Layout{2, 2}, Layout{1, 2, 2}, Layout{2, 1, 2},
                               Layout{2, 2, 2}, Layout{2, 2, 4}, Layout{1, 4, 2}, Layout{4, 2, 2}}) {
    SCOPED_TRACE("tensor " + std::to_string(layout.tensor) + ", context " + std::to_string(layout.context) +
                 ", expert " + std::to_string(layout.expert));
    HeldParameters held(layout);
    using Element = std::pair<std::string, std::int64_t>;
    std::map<Element, float> holders;  // a bit for each rank
    std::map<Element, int> counted;
    held.for_each([&](std::size_t rank, Parameter& parameter, std::int64_t row, std::size_t at) {
      const auto bit = static_cast<float>(std::int64_t{1} << rank);
      parameter.gradient().span<float>()[at] = bit;
      holders[{parameter.name(), row}] += bit;
      counted[{parameter.name(), row}] += is_counted(held.context(rank), parameter.holding()) ? 1 : 0;
    });
    held.sum();
    held.for_each([&](std::size_t, Parameter& parameter, std::int64_t row, std::size_t at) {
      EXPECT_EQ(parameter.gradient().span<float>()[at], holders.at({parameter.name(), row})) << parameter.name();
    });
    EXPECT_EQ(counted.size(), 6U * HeldParameters::rows);
    for (const auto& [element, times] : counted) EXPECT_EQ(times, 1) << element.first;
  }
}

}  // namespace
}  // namespace maestro::testing
