// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/mixed_layouts.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "actors/job/job_probes.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "apps/plan/job_planner.hpp"
#include "apps/plan/ranking_text.hpp"
#include "sections/pass_probe.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro {
namespace {

using testing::distillation_job;
using ::testing::ElementsAre;
using testing::plan_of;
using ::testing::UnorderedElementsAre;
using Mix = std::vector<std::int64_t>;

TEST(MixedLayouts, mixes_have_a_few_wide_replicas_and_all_devices) {
  EXPECT_THAT(possible_mixes(4, {1, 2, 4}), UnorderedElementsAre(Mix{2, 1, 1}));
  EXPECT_THAT(possible_mixes(8, {1, 2, 4, 8}),
              UnorderedElementsAre(Mix{2, 1, 1, 1, 1, 1, 1}, Mix{2, 2, 1, 1, 1, 1}, Mix{4, 1, 1, 1, 1}, Mix{4, 2, 2}));
  EXPECT_THAT(possible_mixes(3, {1, 2}), UnorderedElementsAre(Mix{2, 1}));
  EXPECT_THAT(possible_mixes(7, {2, 4}), ElementsAre()) << "7 parts cannot be divided in twos";
  EXPECT_THAT(possible_mixes(8, {4}), ElementsAre());
  for (const Mix& mix : possible_mixes(64, {1, 2, 4, 8, 16, 32, 64})) {
    EXPECT_EQ(std::accumulate(mix.begin(), mix.end(), std::int64_t{0}), 64);
    EXPECT_TRUE(std::ranges::is_sorted(mix, std::greater<>()));
    EXPECT_NE(mix.front(), mix.back());
  }
}

TEST(MixedLayouts, a_mix_takes_the_place_of_two_keys) {
  EXPECT_THAT(with_mix({"teacher.replicas=2", "student.replicas=2", "student.tensor=2", "student.context=2",
                        "student.devices=[\"cpu:0\"]"},
                       "student", {2, 1, 1}),
              ElementsAre("teacher.replicas=2", "student.tensor=2", "student.devices=[\"cpu:0\"]",
                          "student.replicas=[{context = 2}, {count = 2, context = 1}]"));
}

/// Returns a job whose student alone has free keys: replicas, context and devices. In a step of eight samples one is
/// long on average.
std::string job_of_long_samples() {
  std::string job = distillation_job;
  const auto give = [&](const std::string& section, const std::string& keys) {
    const std::string header = "[" + section + "]\n";
    job.insert(job.find(header) + header.size(), keys);
  };
  const std::string alike = "replicas = 1\ntensor = 1\ncontext = 1\npipeline = 1\ndevices = [\"cpu:3\"]\n";
  give("teacher", alike);
  give("plain", alike + "zero = false\n");
  give("student", "tensor = 1\npipeline = 1\nzero = false\n");
  for (std::size_t at = job.find("positions = 12"); at != std::string::npos; at = job.find("positions = 12")) {
    job.replace(at, 14, "positions = 64");
  }
  job.replace(job.find("sequence = 12"), 13, "lengths = [[2, 1.0], [3, 0.14], [62, 0.12], [64, 0.06]]");
  return job;
}

const std::vector<std::string> sizes{"student.micro_batch=1", "student.layers=6", "teacher.layers=1",
                                     "teacher.micro_batch=8", "plain.layers=1",   "plain.micro_batch=8"};

ResolvedJob plan_with(std::vector<std::string> settings) {
  settings.insert(settings.end(), sizes.begin(), sizes.end());
  return plan_of(job_of_long_samples(), settings);
}

TEST(MixedLayouts, plans_give_long_samples_to_wide_replicas) {
  const ResolvedJob plan = plan_with({"student.replicas=[{context = 2}, {count = 2, context = 1}]"});
  const SectionId student = *plan.graph.find("student");
  std::map<bool, std::vector<std::int64_t>> lengths;  // by whether the replica is wide
  for (const StepPlan& step : plans_of(plan, first_steps(plan, 24), nullptr).value_or_throw()) {
    for (const MicroBatchPlan& batch : step.micro_batches) {
      if (batch.section == student) lengths[batch.replica == ReplicaIndex(0)].push_back(batch.samples.front().tokens);
    }
  }
  const auto long_ones = [&](bool wide) {
    return std::ranges::count_if(lengths[wide], [](std::int64_t length) { return length > 32; });
  };
  EXPECT_GT(lengths[false].size(), lengths[true].size() / 2) << "narrow replicas work too";
  EXPECT_GT(long_ones(true), 2 * long_ones(false));
}

/// Returns prices by the work of each call at a constant rate. The runtime's work around the calls of a pass takes a
/// sixteenth as long as the longest sample on one device, however many devices share the pass.
MachinePrices prices_with_glue() {
  MachinePrices prices;
  double longest_ms = 0;
  std::size_t calls = 1;
  const auto add = [&](const std::vector<ObservedCall>& observed) {
    double sum_ms = 0;
    for (const ObservedCall& each : observed) {
      const double ms = 1e-6 * each.call.flops + 1e-8 * each.call.bytes;
      for (CallPrices* const of : {&prices.alone, &prices.busy}) of->add(each.call, ms);
      sum_ms += ms;
    }
    return sum_ms;
  };
  for (const std::string context : {"1", "2", "4"}) {
    const ResolvedJob plan = plan_with({"student.context=" + context});
    for (const StepPlan& step : plans_of(plan, first_steps(plan, 4), nullptr).value_or_throw()) {
      for (const MicroBatchPlan& batch : step.micro_batches) {
        const GraphNode& node = plan.graph.node(batch.section);
        if (node.role == Role::source) continue;
        PassProbe probe(probed_section(plan, batch.section), LayoutRank(0), ProbeSite());
        const ObservedPasses passes = probe.pass(batch);
        const double ms = add(passes.forward) + add(passes.backward);
        if (node.name == "student" && ms > longest_ms) {
          longest_ms = ms;
          calls = passes.forward.size() + passes.backward.size();
        }
        if (!node.trained()) continue;
        const ObservedStepEnd end = probe.step_end();
        for (const auto* of : {&end.add_ranks, &end.norm, &end.step}) (void)add(*of);
      }
    }
  }
  for (CallPrices* const of : {&prices.alone, &prices.busy}) of->add_glue(calls, longest_ms / 16);
  return prices;
}

TEST(MixedLayouts, a_plan_proposes_a_mix_if_the_lengths_of_samples_make_it_faster) {
  MachinePrices prices = prices_with_glue();
  JobPlannerOptions options;
  options.machine.devices = 4;
  JobPlanner planner([](const std::vector<std::string>& settings) { return plan_with(settings); }, options, prices);
  const LayoutRanking ranking = planner.rank();
  const RankedLayout& best = ranking.best.front();
  ASSERT_TRUE(best.mixes.contains("student")) << placed_text(best, "student");
  EXPECT_THAT(best.mixes.at("student"), ElementsAre(2, 1, 1));
  EXPECT_THAT(placed_text(best, "student"), ::testing::HasSubstr("context [1 x 2, 2 x 1]"));
  double alike_ms = std::numeric_limits<double>::infinity();
  for (const RankedLayout& other : ranking.best) {
    if (other.mixes.empty()) alike_ms = std::min(alike_ms, other.step_ms);
  }
  EXPECT_LT(best.step_ms, 0.9 * alike_ms);
  const ResolvedJob plan = plan_with(best.settings);
  EXPECT_THAT(plan.graph.node(*plan.graph.find("student")).contexts, ElementsAre(2, 1, 1));
}

}  // namespace
}  // namespace maestro
