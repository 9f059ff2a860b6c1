// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/job_planner.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "actors/job/job_probes.hpp"
#include "apps/plan/section_profiler.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobPlannerTest : public ::testing::Test {
 protected:
  JobPlanner planner(const std::string& job, std::set<std::string> varied = {}, int cores = 2) {
    JobPlannerOptions options;
    options.machine.devices = 2;
    options.machine.cores = cores;
    options.varied = std::move(varied);
    return JobPlanner([job](const std::vector<std::string>& settings) { return plan_of(job, settings); }, options,
                      prices_);
  }
  /// Prices every operator by its work at a constant rate, so that no result depends on measured time.
  void price_by_work(const std::string& job, bool with_ranks = true) {
    std::vector<std::vector<std::string>> all{{}};
    if (with_ranks) all.insert(all.end(), {all_with(job, "tensor"), all_with(job, "context")});
    for (const std::vector<std::string>& settings : all) {
      const ResolvedJob plan = plan_of(job, settings);
      const std::vector<StepPlan> steps = plans_of(plan, first_steps(plan, 1), nullptr).value_or_throw();
      for (const MicroBatchPlan& batch : steps.front().micro_batches) {
        if (plan.graph.node(batch.section).role == Role::source) continue;
        PassProbe probe(probed_section(plan, batch.section), LayoutRank(0), ProbeSite());
        const ObservedPasses passes = probe.pass(batch);
        add(passes.forward);
        add(passes.backward);
        if (!plan.graph.node(batch.section).trained()) continue;
        const ObservedStepEnd end = probe.step_end();
        for (const auto* calls : {&end.add_ranks, &end.norm, &end.step}) add(*calls);
      }
    }
  }
  LayoutRanking ranking(const std::string& job, std::set<std::string> varied = {}) {
    JobPlanner made = planner(job, std::move(varied));
    SectionProfiler profiler(made.machine(), {std::chrono::milliseconds(0)});
    made.measure(profiler, [&](const std::string&) { ++measured_; });
    return made.rank();
  }
  std::string error_of(const std::string& job, std::set<std::string> varied) {
    try {
      (void)planner(job, std::move(varied));
      return {};
    } catch (const JobError& error) {
      return error.what();
    }
  }

  MachinePrices prices_;
  int measured_ = 0;

 private:
  static std::vector<std::string> all_with(const std::string& job, const std::string& degree) {
    std::vector<std::string> settings;
    const ResolvedJob plan = plan_of(job);
    for (const GraphNode& node : plan.graph.nodes()) {
      if (node.role != Role::source) settings.push_back(node.name + "." + degree + "=2");
    }
    return settings;
  }
  void add(const std::vector<ObservedCall>& calls) {
    for (const ObservedCall& observed : calls) {
      const double ms = 1e-7 * (observed.call.flops + observed.call.bytes);
      prices_.alone.add(observed.call, ms);
      prices_.busy.add(observed.call, ms);
    }
  }
};

TEST_F(JobPlannerTest, layouts_resolve_and_keep_the_keys_of_the_job) {  // JP-1, JP-3
  const LayoutRanking found = ranking(distillation_job);
  ASSERT_FALSE(found.best.empty());
  EXPECT_GT(found.compared, 100U);
  for (const RankedLayout& ranked : found.best) {
    EXPECT_EQ(ranked.sections.at("teacher").micro_batch, 2);
    EXPECT_EQ(ranked.sections.at("student").micro_batch, 4);
    const ResolvedJob plan = plan_of(distillation_job, ranked.settings);
    for (const auto& [name, layout] : ranked.sections) {
      const PlannedSection& planned = plan.sections[plan.graph.stages_of(name).front().value()];
      EXPECT_EQ(planned.config.replicas, layout.replicas);
      EXPECT_EQ(planned.config.tensor, layout.tensor);
      EXPECT_EQ(planned.config.pipeline, layout.pipeline);
    }
  }
  EXPECT_GT(found.best.front().sources.measured_share(), 0.5);
}

TEST_F(JobPlannerTest, chunks_of_the_job_stand_and_others_are_chosen) {  // JP-1
  std::string job = distillation_job;
  job.replace(job.find("layers = 2", job.find("[plain]")), 10, "layers = 4\npipeline = 2\nmax_in_flight = 4");
  price_by_work(job, false);
  const auto chunks_of = [&](const LayoutRanking& found) {
    std::set<std::int64_t> chunks;
    for (const RankedLayout& ranked : found.best) {
      const SectionLayout& layout = ranked.sections.at("plain");
      chunks.insert(layout.chunks);
      const ResolvedJob plan = plan_of(job, ranked.settings);
      EXPECT_EQ(plan.sections[plan.graph.stages_of("plain").front().value()].config.chunks, layout.chunks);
      EXPECT_EQ(ranked.devices.at("plain").size(), 2U) << "both chunks of a device are on it";
    }
    return chunks;
  };
  EXPECT_THAT(chunks_of(planner(job).rank()), ::testing::IsSupersetOf({1, 2}));
  job.insert(job.find("[plain]\n") + 8, "chunks = 2\n");
  EXPECT_THAT(chunks_of(planner(job).rank()), ElementsAre(2));
}

TEST_F(JobPlannerTest, ranks_that_share_experts_are_tried_unless_the_job_states_them) {  // JP-1
  std::string job = distillation_job;
  job.replace(job.find("llama"), 5, "qwen3_moe");
  job.insert(job.find("[teacher]\n") + 10, "experts = 4\ntensor = 2\n");
  price_by_work(job, false);
  const auto experts_of = [&](const LayoutRanking& found) {
    std::set<std::int64_t> experts;
    for (const RankedLayout& ranked : found.best) {
      const SectionLayout& layout = ranked.sections.at("teacher");
      experts.insert(layout.expert);
      const ResolvedJob plan = plan_of(job, ranked.settings);
      EXPECT_EQ(plan.sections[plan.graph.stages_of("teacher").front().value()].config.expert, layout.expert);
      EXPECT_EQ(ranked.sections.at("plain").expert, 1) << "it has no experts";
    }
    return experts;
  };
  EXPECT_THAT(experts_of(planner(job).rank()), ElementsAre(1, 2));
  for (const std::int64_t given : {1, 2}) {
    std::string stated = job;
    stated.insert(stated.find("[teacher]\n") + 10, "expert = " + std::to_string(given) + "\n");
    for (const RankedLayout& ranked : planner(stated).rank().best) {
      EXPECT_EQ(ranked.sections.at("teacher").expert, given);
    }
  }
}

TEST_F(JobPlannerTest, a_section_on_the_devices_of_another_follows_it) {  // JP-1
  std::string job = distillation_job;
  job.insert(job.find("[teacher]\n") + 10, "devices = [\"plain\"]\n");
  price_by_work(job);
  const LayoutRanking found = planner(job).rank();
  for (const RankedLayout& ranked : found.best) {
    EXPECT_EQ(ranked.devices.at("teacher"), ranked.devices.at("plain"));
    const ResolvedJob plan = plan_of(job, ranked.settings);
    EXPECT_EQ(plan.graph.node(plan.graph.stages_of("teacher").front()).replicas,
              ranked.sections.at("teacher").replicas);
    for (const std::string& setting : ranked.settings) {
      EXPECT_FALSE(setting.starts_with("teacher.devices") || setting.starts_with("teacher.replicas")) << setting;
    }
  }
  EXPECT_THAT(found.best, ::testing::Not(::testing::IsEmpty()));
}

TEST_F(JobPlannerTest, sections_of_pictures_have_layouts_and_shares_of_their_time) {
  const LayoutRanking found = ranking(vision_job);
  for (const RankedLayout& ranked : found.best) {
    EXPECT_GT(ranked.step_ms, 0);
    for (const auto& [name, shares] : ranked.shares) {
      EXPECT_GE(shares.passes, 0) << name;
      EXPECT_LE(shares.passes + shares.step_ends, 1 + 1e-9) << name;
    }
  }
  for (std::size_t at = 1; at < found.best.size(); ++at) {
    EXPECT_GE(found.best[at].step_ms, found.best.front().step_ms * 0.99 - 1e-9);
  }
}

TEST_F(JobPlannerTest, more_micro_batches_are_in_flight_where_a_section_waits_for_gradients) {
  std::string job = vision_job;
  for (std::string::size_type at = 0; (at = job.find("max_in_flight = 4\n")) != std::string::npos;) job.erase(at, 18);
  job.insert(job.find("[vision]\n") + 9, "devices = [\"cpu:0\"]\nreplicas = 1\ntensor = 1\n");
  job.insert(job.find("[projector]\n") + 12, "devices = [\"cpu:0\"]\nreplicas = 1\ntensor = 1\n");
  job.insert(job.find("[llm]\n") + 6, "devices = [\"cpu:1\"]\nreplicas = 1\ntensor = 1\n");
  const auto replace = [&](const std::string& old, const std::string& by) {
    for (std::string::size_type at = 0; (at = job.find(old, at)) != std::string::npos; at += by.size()) {
      job.replace(at, old.size(), by);
    }
  };
  replace("micro_batch_tokens = 24", "micro_batch_tokens = 4");
  replace("global_batch = 8", "global_batch = 32");
  replace("layers = 2\nwidth = 16\nheads = 4\npatch", "layers = 12\nwidth = 32\nheads = 4\npatch");
  price_by_work(job, false);
  const RankedLayout best = planner(job, {"llm.micro_batch"}).rank().best.front();
  EXPECT_THAT(best.more, ElementsAre(::testing::AnyOf("vision.max_in_flight=4", "vision.max_in_flight=8")));
  EXPECT_THAT(best.settings, ::testing::Contains(best.more.front()));
  replace("micro_batch_tokens = 4", "micro_batch_tokens = 4\nmax_in_flight = 2");
  const RankedLayout given = planner(job, {"llm.micro_batch"}).rank().best.front();
  EXPECT_THAT(given.more, ::testing::IsEmpty()) << "the job gives it";  // JP-1
  EXPECT_GT(given.step_ms, best.step_ms * 1.005);
}

TEST_F(JobPlannerTest, the_same_prices_give_the_same_ranking) {  // JP-2, PY-1
  price_by_work(distillation_job);
  const LayoutRanking first = planner(distillation_job, {"micro_batch"}).rank();
  const LayoutRanking second = planner(distillation_job, {"micro_batch"}).rank();
  ASSERT_EQ(first.best.size(), second.best.size());
  for (std::size_t at = 0; at < first.best.size(); ++at) {
    EXPECT_EQ(first.best[at].settings, second.best[at].settings);
    EXPECT_EQ(first.best[at].step_ms, second.best[at].step_ms);
  }
  EXPECT_EQ(first.least_bound_ms, second.least_bound_ms);
  for (const RankedLayout& ranked : first.best) {  // LB-2
    EXPECT_GE(ranked.step_ms, first.least_bound_ms * (1 - 1e-9));
    EXPECT_GE(ranked.step_ms, ranked.bound_ms * (1 - 1e-9));
  }
}

TEST_F(JobPlannerTest, two_devices_of_a_core_do_as_much_as_one) {  // LB-2
  price_by_work(distillation_job);
  const LayoutRanking apart = planner(distillation_job, {"micro_batch"}, 2).rank();
  const LayoutRanking shared = planner(distillation_job, {"micro_batch"}, 1).rank();
  for (const RankedLayout& ranked : shared.best) {
    EXPECT_GE(ranked.step_ms, ranked.bound_ms * (1 - 1e-9));
    EXPECT_GE(ranked.bound_ms, shared.least_bound_ms * (1 - 1e-9));
  }
  // All sections keep the core busy all the time, so a step takes as long as the bound.
  EXPECT_LT(shared.best.front().step_ms, 1.05 * shared.least_bound_ms);
  EXPECT_GT(shared.least_bound_ms, 1.7 * apart.least_bound_ms);
}

TEST_F(JobPlannerTest, calls_with_prices_are_not_measured_again) {
  (void)ranking(distillation_job);
  const int once = std::exchange(measured_, 0);
  EXPECT_GT(once, 0);
  (void)ranking(distillation_job);
  EXPECT_EQ(measured_, 0);
}

TEST_F(JobPlannerTest, measurements_next_to_busy_processes_are_repeated_and_counted) {
  std::string job = distillation_job;
  job.replace(job.find("width = 16", job.find("[plain]")), 10, "width = 256");  // passes longer than a turn on a core
  JobPlanner made = planner(job);
  SectionProfiler profiler(made.machine(), {std::chrono::milliseconds(0)});
  std::atomic<bool> ends = false;
  std::vector<std::jthread> busy;
  for (unsigned thread = 0; thread < 8 * std::thread::hardware_concurrency(); ++thread) {
    busy.emplace_back([&ends] {
      while (!ends) {
      }
    });
  }
  made.measure(profiler, [](const std::string&) {});
  ends = true;
  EXPECT_GT(profiler.repeated(), 0U);
  EXPECT_LE(profiler.disturbed(), profiler.measured());
}

TEST_F(JobPlannerTest, a_section_that_costs_more_than_all_others_gets_more_devices) {
  std::string job = distillation_job;
  const auto at = job.find("layers = 2\nwidth = 16", job.find("[student]"));
  job.replace(at, std::string("layers = 2\nwidth = 16").size(), "layers = 2\nwidth = 64");
  price_by_work(job);
  const LayoutRanking found = planner(job, {"micro_batch"}).rank();
  EXPECT_EQ(found.best.front().sections.at("student").devices(), 2);
  EXPECT_LE(found.least_bound_ms, found.best.front().step_ms);
}

TEST_F(JobPlannerTest, varied_keys_are_those_of_sections) {
  EXPECT_THAT(error_of(distillation_job, {"teacher.micro_bach"}), HasSubstr("did you mean teacher.micro_batch?"));
  EXPECT_THAT(error_of(distillation_job, {"lr"}),
              HasSubstr("plan chooses replicas, tensor, context, expert, pipeline"));
  EXPECT_EQ(error_of(distillation_job, {"teacher.micro_batch", "replicas"}), "");
  JobPlanner made = planner(distillation_job, {"teacher.micro_batch"});
  EXPECT_TRUE(made.keys().of("teacher").contains("micro_batch"));
  EXPECT_FALSE(made.keys().of("student").contains("micro_batch"));
  EXPECT_FALSE(made.keys().of("teacher").contains("zero")) << "nothing is trained there";
  EXPECT_FALSE(planner(vision_job, {"all"}).keys().of("vision").contains("micro_batch")) << "it follows the tokens";
}

TEST_F(JobPlannerTest, a_job_that_gives_all_is_told_how_to_go_on) {
  std::string job = distillation_job;
  for (const char* const section : {"[teacher]\n", "[student]\n", "[plain]\n"}) {
    const bool frozen = std::string(section) == "[teacher]\n";
    job.insert(job.find(section) + std::string(section).size(),
               std::string("replicas = 1\ntensor = 1\ncontext = 1\npipeline = 1\ndevices = [\"cpu:0\"]\n") +
                   (frozen ? "" : "zero = false\n"));
  }
  EXPECT_THAT(error_of(job, {}), HasSubstr("--vary micro_batch"));
  EXPECT_EQ(error_of(job, {"micro_batch"}), "");
}

}  // namespace
}  // namespace maestro::testing
