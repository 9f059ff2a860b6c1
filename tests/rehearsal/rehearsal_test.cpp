// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsal.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "runtime/rehearsal/rehearsed_shares.hpp"
#include "runtime/schedule/step_planner.hpp"
#include "tests/schedule/planner_options.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;
using testing::options_of;
using testing::random_graph;
using testing::random_samples;
using Kind = LaneInterval::Kind;

/// Returns the graph with limits in flight that are large enough for any plan.
SectionGraph bounded(SectionGraph graph, std::int64_t samples) {
  const std::vector<std::int64_t> bounds = in_flight_bounds(graph, samples);
  for (std::uint32_t index = 0; index < bounds.size(); ++index) {
    const std::int64_t needed = graph.nodes()[index].follows_consumer() ? samples : bounds[index];
    graph.set_max_in_flight(SectionId(index), std::max(graph.nodes()[index].max_in_flight, needed));
  }
  return graph;
}

/// Returns the times that options_of() plans with; sources take no time.
RehearsalTimes planned_times(const SectionGraph& graph) {
  RehearsalTimes times;
  times.passes = [&graph](const MicroBatchPlan& batch) {
    PassCost cost;
    if (graph.node(batch.section).role == Role::source) return cost;
    for (const SampleRef& sample : batch.samples) {
      const double work = static_cast<double>(sample.tokens + 3 * sample.patches) * (1.0 + batch.section.value());
      cost.forward += work;
      if (graph.node(batch.section).runs_backward() && batch.pass == Pass::train) cost.backward += 2 * work;
    }
    return cost;
  };
  return times;
}

RehearsalUnit unit_of(StepPlanner& planner, std::uint64_t step, Pass pass, const std::vector<SampleRef>& samples) {
  RehearsalUnit unit;
  unit.plan = planner.plan(StepId(step), pass, samples, 1).value_or_throw().plan;
  return unit;
}

double busy_ms(const std::vector<LaneInterval>& intervals) {
  double sum = 0;
  for (const LaneInterval& interval : intervals) {
    if (interval.kind != Kind::wait && interval.kind != Kind::boundary) sum += interval.end_ms - interval.start_ms;
  }
  return sum;
}

TEST(Rehearsal, a_step_with_the_planned_times_ends_at_the_makespan_of_its_schedule) {  // RH-1
  const SectionGraph graph = testing::distillation_graph(2);
  const FlowLimits limits{16, 16, 0};
  Generator random(5);
  for (int round = 0; round < 20; ++round) {
    StepPlanner planner(options_of(graph, "arrival", limits));
    const auto planned = planner.plan(StepId(1), Pass::train, random_samples(random, 12), 1).value_or_throw();
    RehearsalOptions options;
    options.graph = &graph;
    options.limits = limits;
    options.times = planned_times(graph);
    std::vector<RehearsalUnit> units(1);
    units[0].plan = planned.plan;
    const Rehearsed played = Rehearsal(std::move(options)).play(std::move(units)).value_or_throw();
    EXPECT_NEAR(played.unit_ends_ms.front(), planned.schedule.makespan_ms, 1e-9);
  }
}

TEST(Rehearsal, a_step_on_lanes_of_different_speeds_ends_at_the_makespan_of_its_schedule) {  // RH-1
  const SectionGraph graph = testing::distillation_graph(3);
  const FlowLimits limits{16, 16, 0};
  Generator random(6);
  for (const std::string_view policy : {"arrival", "wavefront"}) {
    for (int round = 0; round < 20; ++round) {
      StepPlannerOptions planning = options_of(graph, policy, limits);
      planning.speeds = {{}, {0.25, 1, 0.5}, {}};
      StepPlanner planner(planning);
      const auto planned = planner.plan(StepId(1), Pass::train, random_samples(random, 12), 1).value_or_throw();
      RehearsalOptions options;
      options.graph = &graph;
      options.limits = limits;
      options.times.passes = [times = planned_times(graph), planning](const MicroBatchPlan& batch) {
        const auto& speeds = planning.speeds[batch.section.value()];
        const double speed = speeds.empty() ? 1 : speeds[batch.replica.value()];
        const PassCost fastest = times.passes(batch);
        return PassCost{fastest.forward / speed, fastest.backward / speed};
      };
      std::vector<RehearsalUnit> units(1);
      units[0].plan = planned.plan;
      const Rehearsed played = Rehearsal(std::move(options)).play(std::move(units)).value_or_throw();
      // Lanes in a run start passes as soon as they can; a plan may leave a lane idle in between.
      EXPECT_LE(played.unit_ends_ms.front(), planned.schedule.makespan_ms + 1e-9) << policy;
      if (policy == "arrival") {
        EXPECT_NEAR(played.unit_ends_ms.front(), planned.schedule.makespan_ms, 1e-9);
      }
    }
  }
}

TEST(Rehearsal, a_step_on_shared_devices_ends_at_the_makespan_of_its_schedule) {  // RH-1
  const FlowLimits limits{64, 16, 0};
  Generator random(7);
  double gained = 0;  // over devices that take what comes first
  for (int round = 0; round < 20; ++round) {
    const SectionGraph graph = bounded(random_graph(random, {}, 4), 12);
    const testing::SharedDevices shared = testing::shared_devices(random, graph, 3);
    StepPlannerOptions planning = options_of(graph, "wavefront", limits);
    planning.devices = shared.devices;
    planning.turns = shared.turns;
    auto planned = StepPlanner(planning).plan(StepId(1), Pass::train, random_samples(random, 12), 1).value_or_throw();
    RehearsalOptions options;
    options.graph = &graph;
    options.limits = limits;
    options.devices = shared.devices;
    options.times = planned_times(graph);
    options.step_ends = [](const LaneKey&) { return StepEndOptions(); };  // ends of steps are not in the plan
    std::vector<RehearsalUnit> units(1);
    units[0].plan = planned.plan;
    const double in_turns = Rehearsal(options).play(units).value_or_throw().unit_ends_ms.front();
    EXPECT_LE(in_turns, planned.schedule.makespan_ms + 1e-9) << "round " << round;
    for (MicroBatchPlan& batch : units[0].plan.micro_batches) batch.forward_turns = batch.backward_turns = {};
    gained += Rehearsal(options).play(units).value_or_throw().unit_ends_ms.front() / in_turns - 1;
  }
  EXPECT_GT(gained, 0);
}

TEST(Rehearsal, sections_run_ahead_so_a_step_takes_less_than_its_makespan) {
  const SectionGraph graph = testing::distillation_graph();
  const FlowLimits limits{2, 4, 0};
  StepPlanner planner(options_of(graph, "arrival", limits));
  std::vector<SampleRef> samples;
  for (std::uint32_t at = 0; at < 4; ++at) samples.push_back({SampleId(at), 1});
  std::vector<RehearsalUnit> units;
  for (std::uint64_t step = 1; step <= 4; ++step) units.push_back(unit_of(planner, step, Pass::train, samples));
  RehearsalOptions options;
  options.graph = &graph;
  options.limits = limits;
  options.times.passes = [](const MicroBatchPlan& batch) {
    return batch.section == SectionId(0) ? PassCost() : PassCost{batch.section == SectionId(1) ? 3.0 : 2.0, 2};
  };
  options.times.actions = [](const LaneKey&, StepAction action) { return action == StepAction::step ? 1.5 : 0; };
  const Rehearsed played = Rehearsal(std::move(options)).play(std::move(units)).value_or_throw();
  // The student needs 4 x 4 ms and its optimizer's step; the teacher's first pass precedes only the first step.
  EXPECT_THAT(played.unit_ends_ms, ::testing::ElementsAre(20.5, 38, 55.5, 73));
}

TEST(Rehearsal, lanes_of_a_device_take_turns) {
  const SectionGraph graph = testing::distillation_graph();
  const FlowLimits limits{2, 2, 0};
  StepPlanner planner(options_of(graph, "arrival", limits));
  RehearsalOptions options;
  options.graph = &graph;
  options.limits = limits;
  options.devices = {{}, {{0}}, {{0, 1}}};
  options.times.passes = [](const MicroBatchPlan& batch) {
    return batch.section == SectionId(0) ? PassCost() : PassCost{1, batch.section == SectionId(2) ? 2.0 : 0.0};
  };
  const std::vector<SampleRef> samples{{SampleId(0), 1}, {SampleId(1), 1}};
  const Rehearsed played =
      Rehearsal(std::move(options)).play({unit_of(planner, 1, Pass::train, samples)}).value_or_throw();
  EXPECT_EQ(played.unit_ends_ms.front(), 8);
}

TEST(Rehearsal, lanes_of_a_core_share_it_in_passes_and_in_exchanges) {
  SectionGraph graph;
  testing::add_section(graph, "text", Role::source, {});
  testing::add_section(graph, "model", Role::trained, {"text"}, 3);
  const FlowLimits limits{2, 2, 0};
  StepPlanner planner(options_of(graph, "arrival", limits));
  RehearsalOptions options;
  options.graph = &graph;
  options.limits = limits;
  options.devices = {{}, {{0}, {1}, {2}}};
  options.cores = {0, 1, 0};
  options.times.passes = [](const MicroBatchPlan& batch) { return PassCost{batch.section.value() * 3.0, 0}; };
  options.times.actions = [](const LaneKey&, StepAction action) {
    if (action == StepAction::sum) return 2.0;
    return action == StepAction::step ? 4.0 : 0.0;
  };
  options.step_ends = [](const LaneKey& lane) {
    StepEndOptions end;
    end.trained = lane.section == SectionId(1);
    return end;
  };
  const std::vector<SampleRef> samples{{SampleId(0), 1}, {SampleId(1), 1}, {SampleId(2), 1}};
  const Rehearsed played =
      Rehearsal(std::move(options)).play({unit_of(planner, 1, Pass::train, samples)}).value_or_throw();
  // On core 0: two passes of 3 ms, two parts of the sum, and two optimizer steps.
  EXPECT_EQ(played.unit_ends_ms.front(), 6 + 4 + 8);
  EXPECT_EQ(played.lanes.at({SectionId(1), ReplicaIndex(1)}).front().end_ms, 3);
}

TEST(Rehearsal, replicas_meet_at_the_sum_of_gradients_and_trained_sections_at_a_joined_norm) {
  SectionGraph graph;
  testing::add_section(graph, "text", Role::source, {});
  testing::add_section(graph, "small", Role::trained, {"text"}, 2);
  testing::add_section(graph, "large", Role::trained, {"text"});
  const FlowLimits limits{2, 2, 0};
  StepPlanner planner(options_of(graph, "arrival", limits));
  RehearsalOptions options;
  options.graph = &graph;
  options.limits = limits;
  options.joined_norms = true;
  options.step_ends = [](const LaneKey& lane) {
    StepEndOptions end;
    end.trained = lane.section != SectionId(0);
    end.awaits_total = true;
    return end;
  };
  options.times.passes = [](const MicroBatchPlan& batch) {
    if (batch.section == SectionId(1)) return PassCost{batch.samples.front().tokens == 1 ? 1.0 : 5.0, 0};
    return PassCost{batch.section == SectionId(2) ? 10.0 : 0.0, 0};
  };
  options.times.actions = [](const LaneKey&, StepAction action) {
    if (action == StepAction::sum) return 2.0;
    return action == StepAction::step ? 4.0 : 0.0;
  };
  const std::vector<SampleRef> samples{{SampleId(0), 1}, {SampleId(1), 2}};
  const Rehearsed played =
      Rehearsal(std::move(options)).play({unit_of(planner, 1, Pass::train, samples)}).value_or_throw();
  EXPECT_EQ(played.unit_ends_ms.front(), 26);  // 2 x 10 for passes, 2 for the sum, 4 for the step
  const LaneInterval& last = played.lanes.at({SectionId(1), ReplicaIndex(0)}).back();
  EXPECT_EQ(last.kind, Kind::boundary);
  EXPECT_EQ(last.end_ms, 26);
}

class AnyTimes : public ::testing::TestWithParam<std::string> {
 protected:
  static double time(Generator& random) {
    switch (random() % 6) {
      case 0:
        return 0;
      case 1:
        return 1e12;
      case 2:
        return std::numeric_limits<double>::infinity();
      case 3:
        return -1;
      default:
        return static_cast<double>(random() % 100) / 7;
    }
  }
};

TEST_P(AnyTimes, every_rehearsal_of_a_planners_plans_ends) {  // RH-4
  Generator random(11);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t count = draw(random, 1, 9);
    const SectionGraph graph = bounded(random_graph(random, {.tensor = 2, .context = 2}, 4), count);
    const FlowLimits limits{draw(random, 1, 3), count, count};
    StepPlannerOptions planning = options_of(graph, GetParam(), limits);
    testing::SharedDevices shared;
    if (round % 2 == 1) shared = testing::shared_devices(random, graph, draw(random, 1, 4));
    planning.devices = shared.devices;
    planning.turns = shared.turns;
    if (round % 4 == 1) {  // passes that take no time begin together
      planning.costs = CostModel([](SectionId section, const SampleRef&) {
        return section.value() % 2 == 0 ? PassCost{} : PassCost{1, 2};
      });
    }
    StepPlanner planner(std::move(planning));
    std::vector<RehearsalUnit> units;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      units.push_back(unit_of(planner, step, Pass::train, random_samples(random, count)));
      if (step == 2) units.push_back(unit_of(planner, step, Pass::evaluate, random_samples(random, count)));
      if (step != 2) continue;
      units.emplace_back().checkpoint = true;
      units.back().plan.step = StepId(step);
    }
    RehearsalOptions options;
    options.graph = &graph;
    options.limits = limits;
    options.devices = shared.devices;
    options.ahead = GetParam() == "bulk_synchronous" ? 0 : draw(random, 0, 3);
    options.times.passes = [&random](const MicroBatchPlan&) { return PassCost{time(random), time(random)}; };
    options.times.actions = [&random](const LaneKey&, StepAction) { return time(random); };
    options.times.hop_ms = round % 2 == 0 ? 0 : 0.1;
    if (round % 3 == 0) options.cores.assign(40, round % 2);  // any device may be on either core
    options.times.transfer = [&random](const LaneKey&, const LaneKey&, Channel, std::int64_t) {
      return TransferTime{time(random), random() % 2 == 0};
    };
    const auto played = Rehearsal(std::move(options)).play(std::move(units));
    ASSERT_TRUE(played) << played.error().message << ", round " << round;
  }
}

TEST_P(AnyTimes, no_device_is_busy_for_longer_than_the_rehearsal_and_a_second_one_is_the_same) {  // RH-2, RH-3
  Generator random(23);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t count = draw(random, 1, 9);
    const SectionGraph graph = bounded(random_graph(random, {}, 4), count);
    const FlowLimits limits{2, count, 0};
    StepPlanner planner(options_of(graph, GetParam(), limits));
    std::vector<RehearsalUnit> units;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      units.push_back(unit_of(planner, step, Pass::train, random_samples(random, count)));
    }
    RehearsalOptions options;
    options.graph = &graph;
    options.limits = limits;
    options.ahead = GetParam() == "bulk_synchronous" ? 0 : 2;
    options.times = planned_times(graph);
    const Rehearsed first = Rehearsal(options).play(units).value_or_throw();
    const Rehearsed again = Rehearsal(options).play(units).value_or_throw();
    EXPECT_EQ(first.unit_ends_ms, again.unit_ends_ms);
    for (int device = 0; device < 40; ++device) options.cores.push_back(device);
    EXPECT_EQ(Rehearsal(options).play(units).value_or_throw().unit_ends_ms, first.unit_ends_ms) << "each has its core";
    for (int& core : options.cores) core %= 2;
    const Rehearsed shared = Rehearsal(options).play(units).value_or_throw();
    double all = 0;
    for (const auto& [lane, intervals] : first.lanes) {
      EXPECT_LE(busy_ms(intervals), first.unit_ends_ms.back() + 1e-9);
      all += busy_ms(intervals);
      for (std::size_t at = 1; at < intervals.size(); ++at) {
        EXPECT_EQ(intervals[at].start_ms, intervals[at - 1].end_ms);
      }
    }
    double work = 0;
    for (const RehearsalUnit& unit : units) {
      for (const MicroBatchPlan& batch : unit.plan.micro_batches) {
        const PassCost cost = options.times.passes(batch);
        work += cost.forward + cost.backward;
      }
    }
    EXPECT_NEAR(all, work, 1e-6 * work) << "no pass is lost";
    EXPECT_GE(shared.unit_ends_ms.back(), work / 2 * (1 - 1e-9)) << "two cores do it";
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, AnyTimes, ::testing::Values("arrival", "wavefront", "bulk_synchronous"),
                         [](const auto& at) { return at.param; });

TEST(Rehearsal, plans_that_wait_for_each_other_are_an_error_that_names_the_lanes) {
  const SectionGraph graph = testing::distillation_graph();
  StepPlanner planner(options_of(graph, "arrival", {2, 2, 0}));
  RehearsalUnit unit = unit_of(planner, 1, Pass::train, {{SampleId(0), 1}});
  std::erase_if(unit.plan.micro_batches, [](const auto& batch) { return batch.section == SectionId(1); });
  RehearsalOptions options;
  options.graph = &graph;
  options.limits = {2, 2, 0};
  const auto played = Rehearsal(std::move(options)).play({std::move(unit)});
  ASSERT_FALSE(played);
  EXPECT_THAT(played.error().message, ::testing::HasSubstr("student/0 waits for input from teacher"));
}

TEST(PassesOfAStep, are_the_mean_of_a_section_over_its_stages) {
  const std::map<std::string, SectionShares> shares{
      {"student.stage0", {0.5, 0, {}}}, {"student.stage1", {0.25, 0, {}}}, {"teacher", {1, 0, {}}}};
  EXPECT_THAT(passes_ms(shares, 80),
              ::testing::ElementsAre(::testing::Pair("student", 30), ::testing::Pair("teacher", 80)));
}

/// A student whose steps take 30 ms, and a generator whose rollouts take 20 ms.
class RehearsedGeneration : public ::testing::Test {
 protected:
  RehearsedGeneration() {
    testing::add_section(graph_, "text", Role::source, {});
    testing::add_section(graph_, "student", Role::trained, {"text"});
    GraphNode generator;
    generator.name = "generator";
    generator.role = Role::generator;
    graph_.connect_weights(SectionId(1), graph_.add(std::move(generator)));
  }

  /// Returns the time between the ends of steps; `devices`: of student and generator.
  double period_ms(std::int64_t staleness, int student, int generator, double rollout_ms = 20) {
    RehearsalOptions options;
    options.graph = &graph_;
    options.limits = {16, 16, 0};
    options.devices = {{{0}}, {{student}}, {{generator}}};
    options.times.passes = [](const MicroBatchPlan& batch) {
      return batch.section == SectionId(1) ? PassCost{6, 16} : PassCost{};
    };
    options.times.actions = [](const LaneKey&, StepAction action) {
      return action == StepAction::step ? 5.0 : action == StepAction::publish ? publish_ms : 0;
    };
    options.step_ends = [](const LaneKey& lane) {
      StepEndOptions end;
      end.trained = end.publishes = lane.section == SectionId(1);
      return end;
    };
    options.generator = RehearsedGenerator{SectionId(2), {1, 2, 512, 4}, {}};
    options.generator->times.prefill = [](std::int64_t) { return 1.0; };
    options.generator->times.decode = [rollout_ms](std::int64_t, std::int64_t) { return (rollout_ms - 2) / 6; };
    options.generator->times.take_ms = 2;
    StepPlanner planner(options_of(graph_, "arrival", options.limits));
    std::vector<RehearsalUnit> units;
    for (std::uint64_t step = 1; step <= 12; ++step) {
      units.push_back(unit_of(planner, step, Pass::train, {{SampleId(step), 8}}));
      const auto age = static_cast<std::uint64_t>(staleness);
      units.back().rollout = RehearsedRollout{StepId(step > age ? step - age : 1), {{4, 6}, {4, 6}}};
    }
    played_ = Rehearsal(std::move(options)).play(std::move(units)).value_or_throw();
    std::vector<double> ends = played_.unit_ends_ms;
    ends.resize(ends.size() - 3);
    return steady_steps(ends)->period_ms();
  }

  static constexpr double publish_ms = 3;
  static constexpr double train_ms = 6 + 16 + 5 + publish_ms;
  SectionGraph graph_;
  Rehearsed played_;
};

TEST_F(RehearsedGeneration, fresh_samples_are_made_between_the_steps) {
  // Two prompts and six tokens of each: the first is a step ahead, and the last token of both prompts is read.
  const double rollout_ms = 2 + 2 + 6 * 3.0;
  EXPECT_NEAR(period_ms(0, 1, 2), train_ms + rollout_ms, 1e-9);
  EXPECT_NEAR(played_.rollouts_ms.front(), rollout_ms, 1e-9);
  EXPECT_NEAR(period_ms(0, 1, 1), train_ms + rollout_ms, 1e-9);  // on one device, too
  const auto shares = section_shares(played_, graph_, {0, played_.unit_ends_ms.back(), 12});
  EXPECT_NEAR(shares.at("generator").passes, rollout_ms / (train_ms + rollout_ms), 1e-9);
}

TEST_F(RehearsedGeneration, older_weights_make_samples_while_the_student_trains) {
  for (const double rollout_ms : {8.0, 20.0, 50.0}) {
    const double lasts = 2 + 2 + (rollout_ms - 2);
    EXPECT_NEAR(period_ms(1, 1, 2, rollout_ms), std::max(train_ms, lasts), 1e-9) << rollout_ms;
    EXPECT_NEAR(period_ms(2, 1, 2, rollout_ms), std::max(train_ms, lasts), 0.5) << rollout_ms;  // a version less
  }
}

TEST_F(RehearsedGeneration, on_the_same_device_their_times_add_up) {
  for (const std::int64_t staleness : {1, 2}) {
    for (const double rollout_ms : {8.0, 20.0, 50.0}) {
      const double lasts = 2 + 2 + (rollout_ms - 2);
      EXPECT_NEAR(period_ms(staleness, 1, 1, rollout_ms), train_ms + lasts, 0.1 * (train_ms + lasts)) << rollout_ms;
    }
  }
}

}  // namespace
}  // namespace maestro
