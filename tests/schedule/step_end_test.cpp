// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/step_end.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

namespace maestro {
namespace {

const std::map<StepAction, std::string> names{
    {StepAction::add_ranks, "add"},
    {StepAction::exchange_tie, "tie"},
    {StepAction::sum, "sum"},
    {StepAction::sum_to_shards, "shards"},
    {StepAction::spread, "spread"},
    {StepAction::timed_sum, "timed"},
    {StepAction::norm, "norm"},
    {StepAction::await_total, "total"},
    {StepAction::step, "step"},
    {StepAction::merge_rows, "merge"},
    {StepAction::gather_values, "gather"},
    {StepAction::gather_rows, "rows"},
    {StepAction::load_values, "load"},
    {StepAction::gather_first_moments, "gather1"},
    {StepAction::copy_first_moments, "copy1"},
    {StepAction::gather_second_moments, "gather2"},
    {StepAction::copy_second_moments, "copy2"},
    {StepAction::write, "write"},
    {StepAction::clear, "clear"},
    {StepAction::report, "report"},
    {StepAction::publish, "publish"},
};

/// Returns the names of the actions in execution order.
std::string run(StepEnd end) {
  std::string text;
  while (const auto action = end.current()) {
    text += (text.empty() ? "" : " ") + names.at(*action);
    end.advance();
  }
  return text;
}

StepBoundary boundary(StepBoundary::Kind kind, Pass pass = Pass::train, bool active = true) {
  StepBoundary made;
  made.kind = kind;
  made.pass = pass;
  made.tokens = active ? 1 : 0;
  return made;
}

const StepBoundary trained_step = boundary(StepBoundary::Kind::end_step);
const StepBoundary snapshot = boundary(StepBoundary::Kind::snapshot);

StepEndOptions trained(std::size_t ranks, bool tied, bool sharded, bool clip, bool writes = true) {
  return {true, ranks, tied, sharded, clip, writes};
}

TEST(StepEnd, values_are_published_after_every_training_step_and_at_the_start) {
  StepEndOptions options = trained(1, false, false, true);
  options.publishes = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "sum norm total step publish report");
  EXPECT_EQ(run(StepEnd(options, boundary(StepBoundary::Kind::end_step, Pass::train, false))), "publish report");
  EXPECT_EQ(run(StepEnd(options, boundary(StepBoundary::Kind::end_step, Pass::evaluate))), "report");
  EXPECT_EQ(run(StepEnd(options, boundary(StepBoundary::Kind::publish))), "publish");
  EXPECT_EQ(run(StepEnd(trained(1, false, false, true), boundary(StepBoundary::Kind::publish))), "");
  StepEnd skipped(options, trained_step);
  while (!skipped.at(StepAction::await_total)) skipped.advance();
  skipped.skip_step();
  EXPECT_EQ(run(skipped), "total clear publish report");
}

TEST(StepEnd, emulated_devices_wait_for_the_sum_when_all_replicas_have_met) {
  StepEndOptions options = trained(2, false, false, true);
  options.timed_sum = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "add sum timed norm total step report");
  options.trained = false;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "report");
}

TEST(StepEnd, a_wide_replica_among_narrow_ones_spreads_what_it_exchanges) {
  StepEndOptions options = trained(2, true, false, true);
  options.spreads = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "add tie sum spread norm total step report");
  options.timed_sum = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "add tie sum spread timed norm total step report");
  options = trained(2, false, true, false);
  options.spreads = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "add shards spread norm total step gather spread load report");
  EXPECT_EQ(run(StepEnd(options, snapshot)), "gather1 copy1 gather2 copy2 write clear");
}

TEST(StepEnd, rows_of_tables_are_merged_before_the_norm_and_gathered_after_the_step) {
  StepEndOptions options = trained(1, false, false, false);
  options.exchanges_rows = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "sum merge norm total step rows report");
  EXPECT_EQ(run(StepEnd(options, snapshot)), "write");
  options.optimizer_sharded = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "shards merge norm total step gather load rows report");
  StepEnd skipped(options, trained_step);
  while (!skipped.at(StepAction::await_total)) skipped.advance();
  skipped.skip_step();
  EXPECT_EQ(run(skipped), "total clear report");
}

TEST(StepEnd, gradients_that_add_up_elsewhere_are_fetched_before_they_are_summed) {
  StepEndOptions options = trained(1, false, false, false);
  options.fetches = true;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "add sum norm step report");
  options.trained = false;
  EXPECT_EQ(run(StepEnd(options, trained_step)), "report");
}

TEST(StepEnd, a_trained_step_sums_clips_and_steps) {       // SB-1
  using Plan = std::tuple<std::size_t, bool, bool, bool>;  // ranks, tied, optimizer sharded, global clip
  const std::map<Plan, std::string> expected{
      {{1, false, false, false}, "sum norm step report"},
      {{1, false, false, true}, "sum norm total step report"},
      {{1, false, true, false}, "shards norm total step gather load report"},
      {{1, false, true, true}, "shards norm total step gather load report"},
      {{1, true, false, false}, "tie sum norm step report"},
      {{1, true, false, true}, "tie sum norm total step report"},
      {{1, true, true, false}, "tie shards norm total step gather load report"},
      {{1, true, true, true}, "tie shards norm total step gather load report"},
      {{4, false, false, false}, "add sum norm step report"},
      {{4, false, false, true}, "add sum norm total step report"},
      {{4, false, true, false}, "add shards norm total step gather load report"},
      {{4, false, true, true}, "add shards norm total step gather load report"},
      {{4, true, false, false}, "add tie sum norm step report"},
      {{4, true, false, true}, "add tie sum norm total step report"},
      {{4, true, true, false}, "add tie shards norm total step gather load report"},
      {{4, true, true, true}, "add tie shards norm total step gather load report"},
  };
  for (const auto& [plan, actions] : expected) {
    const auto [ranks, tied, sharded, clip] = plan;
    EXPECT_EQ(run(StepEnd(trained(ranks, tied, sharded, clip), trained_step)), actions);
    EXPECT_EQ(run(StepEnd(trained(ranks, tied, sharded, clip, false), trained_step)), actions)
        << "of a replica that writes no snapshot";
  }
}

TEST(StepEnd, a_boundary_without_an_update_is_only_reported) {
  const StepEndOptions most = trained(4, true, true, true);
  StepEndOptions frozen = most;
  frozen.trained = false;
  EXPECT_EQ(run(StepEnd(frozen, trained_step)), "report");
  EXPECT_EQ(run(StepEnd(most, boundary(StepBoundary::Kind::end_step, Pass::evaluate))), "report");
  EXPECT_EQ(run(StepEnd(most, boundary(StepBoundary::Kind::end_step, Pass::train, false))), "report")
      << "of a step without a micro-batch of the section";
}

TEST(StepEnd, a_snapshot_collects_sharded_moments_and_is_written_by_one_replica) {
  for (const std::size_t ranks : {1, 4}) {
    for (const bool tied : {false, true}) {
      for (const bool clip : {false, true}) {
        const auto actions = [&](bool sharded, bool writes) {
          return run(StepEnd(trained(ranks, tied, sharded, clip, writes), snapshot));
        };
        EXPECT_EQ(actions(false, true), "write");
        EXPECT_EQ(actions(false, false), "");
        EXPECT_EQ(actions(true, true), "gather1 copy1 gather2 copy2 write clear");
        EXPECT_EQ(actions(true, false), "gather1 gather2 clear");
      }
    }
  }
  EXPECT_EQ(run(StepEnd(StepEndOptions(), snapshot)), "") << "of a frozen section";
}

TEST(StepEnd, replicas_have_the_same_exchanges_in_the_same_order) {  // SB-2
  const auto exchanges = [](const StepEnd& end) {
    std::vector<StepAction> found;
    for (const StepAction action : end.actions()) {
      if (is_exchange(action)) found.push_back(action);
    }
    return found;
  };
  for (const bool sharded : {false, true}) {
    for (const StepBoundary& at : {trained_step, snapshot}) {
      const StepEndOptions first = trained(2, true, sharded, true, true);
      StepEndOptions other = trained(2, true, sharded, true, false);
      other.spreads = true;
      EXPECT_EQ(exchanges(StepEnd(first, at)), exchanges(StepEnd(other, at)));
    }
  }
  EXPECT_EQ(exchanges(StepEnd(trained(2, true, true, true), trained_step)),
            (std::vector{StepAction::exchange_tie, StepAction::sum_to_shards, StepAction::gather_values}));
}

TEST(StepEnd, before_the_first_boundary_and_behind_the_last_action_nothing_runs) {  // SB-1
  EXPECT_EQ(StepEnd().current(), std::nullopt);
  StepEnd end(trained(1, false, false, false), trained_step);
  EXPECT_TRUE(end.at(StepAction::sum));
  EXPECT_TRUE(end.contains(StepAction::step));
  EXPECT_FALSE(end.contains(StepAction::write));
  for (std::size_t action = 0; action < 4; ++action) end.advance();
  EXPECT_EQ(end.current(), std::nullopt);
}

TEST(StepEnd, a_step_that_is_skipped_clears_its_gradients_instead_of_stepping) {
  for (const bool sharded : {false, true}) {
    StepEnd end(trained(1, false, sharded, true), trained_step);
    while (!end.at(StepAction::await_total)) end.advance();
    end.skip_step();
    end.advance();
    EXPECT_EQ(run(end), "clear report");
  }
}

}  // namespace
}  // namespace maestro
