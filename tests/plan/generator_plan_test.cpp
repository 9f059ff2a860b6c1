// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <chrono>

#include "actors/job/job_probes.hpp"
#include "apps/plan/generator_prices.hpp"
#include "apps/plan/job_planner.hpp"
#include "apps/plan/section_profiler.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;
using WorkKind = TimedGeneration::Kind;

const std::string generating_job = distillation_job.substr(0, distillation_job.find("[plain]")) +
                                   "[generator]\nprompt_tokens = 4\nmax_tokens = 6\n" +
                                   "slots = 4\ndevices = [\"cpu:1\"]\n";

/// Plans of a job whose operators and generator have constant prices.
class GeneratorPlan : public ::testing::Test {
 protected:
  ResolvedJob resolved(std::vector<std::string> settings) {
    for (const char* const section : {"teacher", "student"}) {
      settings.push_back(std::string(section) + ".devices=[\"cpu:0\"]");
    }
    ResolvedJob plan = plan_of(generating_job, settings);
    plan.samples = samples_;
    return plan;
  }
  JobPlanner planner(const std::vector<std::string>& settings, CompletionLengths lengths = {}) {
    JobPlannerOptions options;
    options.machine.devices = 2;
    options.machine.cores = 2;
    options.lengths = std::move(lengths);
    const auto resolve = [this, settings](std::vector<std::string> more) {
      more.insert(more.begin(), settings.begin(), settings.end());
      return resolved(std::move(more));
    };
    return JobPlanner(resolve, options, prices_);
  }
  /// Prices operators by their work, and every job of the generator.
  void price(const std::vector<std::string>& settings, double job_ms) {
    prices_ = {};
    samples_->clear();  // other lengths make other samples
    const ResolvedJob plan = resolved(settings);
    const std::vector<StepPlan> steps = plans_of(plan, first_steps(plan, 1), nullptr).value_or_throw();
    for (const MicroBatchPlan& batch : steps.front().micro_batches) {
      if (plan.graph.node(batch.section).role == Role::source) continue;
      PassProbe probe(probed_section(plan, batch.section), LayoutRank(0), ProbeSite());
      const ObservedPasses passes = probe.pass(batch);
      for (const auto* calls : {&passes.forward, &passes.backward}) add(*calls);
      if (!plan.graph.node(batch.section).trained()) continue;
      const ObservedStepEnd end = probe.step_end();
      for (const auto* calls : {&end.add_ranks, &end.norm, &end.step}) add(*calls);
    }
    const GeneratorPrices generator(plan);
    for (CallPrices* const prices : {&prices_.alone, &prices_.busy}) {
      generator.add({{WorkKind::prefill, 1, 4, job_ms},
                     {WorkKind::decode, 1, 8, job_ms},
                     {WorkKind::decode, 4, 32, job_ms},
                     {WorkKind::publish, 1, 0, publish_ms},
                     {WorkKind::take, 1, 0, take_ms}},
                    *prices);
    }
  }
  RankedLayout best(const std::vector<std::string>& settings, double job_ms, CompletionLengths lengths = {}) {
    price(settings, job_ms);
    samples_->clear();
    return planner(settings, std::move(lengths)).rank().best.front();
  }

  static constexpr double publish_ms = 3;
  static constexpr double take_ms = 2;
  MachinePrices prices_;

 private:
  void add(const std::vector<ObservedCall>& calls) {
    for (const ObservedCall& observed : calls) {
      const double ms = 1e-5 * (observed.call.flops + observed.call.bytes);
      prices_.alone.add(observed.call, ms);
      prices_.busy.add(observed.call, ms);
    }
  }
  std::shared_ptr<SampleStore> samples_ = std::make_shared<SampleStore>();
};

TEST_F(GeneratorPlan, fresh_samples_add_their_time_to_the_step) {
  const std::vector<std::string> strict{"generator.staleness=0"};
  const RankedLayout instant = best(strict, 0);
  EXPECT_NEAR(instant.rollout_ms, take_ms, 1.5);  // and hops
  for (const double job_ms : {1.0, 10.0}) {
    const RankedLayout layout = best(strict, job_ms);
    EXPECT_GT(layout.rollout_ms, 20 * job_ms);
    EXPECT_NEAR(layout.step_ms - instant.step_ms, layout.rollout_ms - instant.rollout_ms, 1e-6);
    EXPECT_NEAR(layout.generator_ms, layout.rollout_ms, 1.5);
  }
  EXPECT_FALSE(best(strict, 1).passes_ms.contains("generator"));  // which runs do not report
}

TEST_F(GeneratorPlan, older_weights_hide_the_shorter_of_rollout_and_training) {
  const double trained_ms = best({}, 0).step_ms;
  for (const double share : {0.3, 3.0}) {
    const double job_ms = share * trained_ms / 25;
    const RankedLayout apart = best({}, job_ms);
    const double hops = 2.0;
    EXPECT_NEAR(apart.step_ms, std::max(trained_ms, apart.rollout_ms), hops) << share;
    const RankedLayout together = best({"generator.devices=[\"cpu:0\"]"}, job_ms);
    EXPECT_NEAR(together.step_ms, trained_ms + together.generator_ms, 0.1 * together.step_ms) << share;
  }
}

TEST_F(GeneratorPlan, lengths_of_a_run_and_more_replicas_make_rollouts_shorter) {
  const double whole_ms = best({}, 10).rollout_ms;
  EXPECT_LT(best({}, 10, CompletionLengths({1, 1, 1, 1}, "a run")).rollout_ms, 0.75 * whole_ms);
  EXPECT_LT(
      best({"generator.replicas=2", "generator.devices=[\"cpu:0\",\"cpu:1\"]", "generator.staleness=0"}, 10).rollout_ms,
      0.75 * whole_ms);
  EXPECT_GT(best({"generator.slots=1"}, 10).rollout_ms, 1.5 * whole_ms);
}

TEST_F(GeneratorPlan, the_generator_is_measured_once) {
  JobPlanner made = planner({});
  SectionProfiler profiler(made.machine(), {std::chrono::milliseconds(0)});
  std::vector<std::string> lines;
  made.measure(profiler, [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(lines.back(), "generator: prompts and tokens of up to 4 sequences");
  const LayoutRanking ranking = made.rank();
  EXPECT_GT(ranking.best.front().generator_ms, 0);
  lines.clear();
  prices_ = parse_profile(profile_text(prices_), "profile.json").value_or_throw();
  planner({}).measure(profiler, [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(lines, std::vector<std::string>());
  planner({"generator.slots=2"}).measure(profiler, [&](const std::string& line) { lines.push_back(line); });
  EXPECT_THAT(lines, ::testing::ElementsAre(HasSubstr("up to 2 sequences")));
}

}  // namespace
}  // namespace maestro::testing
