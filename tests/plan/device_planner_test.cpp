// SPDX-License-Identifier: Apache-2.0
// Probes, profiles and plans for GPUs, with fake libraries for CUDA, cuBLASLt and NCCL.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "actors/job/job_probes.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "actors/services/device_groups.hpp"
#include "apps/plan/job_planner.hpp"
#include "apps/plan/section_profiler.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t gpus = 2;
[[maybe_unused]] const int library_named = setenv("MAESTRO_CUDA_LIBRARY", MAESTRO_FAKE_BACKEND, 1);

/// Returns settings that put every section of a job on a GPU, with small heads that the GPU kernels support.
std::vector<std::string> on_gpus(const std::string& job, std::vector<std::string> more = {}) {
  const bool pictures = job.find("[vision]") != std::string::npos;
  const std::vector<std::string> sections = pictures ? std::vector<std::string>{"vision", "projector", "llm"}
                                                     : std::vector<std::string>{"teacher", "student", "plain"};
  for (const std::string& section : sections) {
    if (section != "projector") {
      more.insert(more.end(), {section + ".heads=2", section + ".width=32", section + ".layers=1"});
    }
    const bool placed = std::ranges::any_of(more, [&](const auto& each) { return each.starts_with(section + ".dev"); });
    if (!placed) more.push_back(section + R"(.devices=["cuda:0"])");
  }
  return more;
}

std::vector<std::string> texts_of(const std::vector<ObservedCall>& calls) {
  std::vector<std::string> texts;
  for (const ObservedCall& observed : calls) texts.push_back(text_of(observed.call));
  return texts;
}

struct DeviceCase {
  std::string name;
  std::string job;
  std::vector<std::string> settings;
};

class DeviceProbes : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(DeviceProbes, dry_passes_make_the_calls_of_a_gpu) {  // DY-1, DY-3
  const ResolvedJob plan = plan_of(GetParam().job, on_gpus(GetParam().job, GetParam().settings));
  DeviceOptions options;
  options.name = "cuda:0";
  const std::unique_ptr<Device> device = cuda_status().backend->open(options);
  std::set<SectionId> seen;
  const std::vector<StepPlan> steps = plans_of(plan, first_steps(plan, 1), nullptr).value_or_throw();
  for (const MicroBatchPlan& batch : steps.front().micro_batches) {
    const GraphNode& node = plan.graph.node(batch.section);
    if (node.role == Role::source || !seen.insert(batch.section).second) continue;
    ProbeSite of_dry;
    of_dry.own_memory = true;
    PassProbe dry(probed_section(plan, batch.section), LayoutRank(0), of_dry);
    std::unique_ptr<PassProbe> real;
    std::vector<ObservedPasses> passes;
    ObservedStepEnd end;
    call_on(*device, [&] {
      ProbeSite site;
      site.table = &device->ops();
      site.device = device.get();
      site.own_memory = true;
      real = std::make_unique<PassProbe>(probed_section(plan, batch.section), LayoutRank(0), site);
      for (int pass = 0; pass < 2; ++pass) passes.push_back(real->pass(batch));
      if (node.trained()) end = real->step_end();
    }).get();
    for (const ObservedPasses& pass : passes) {
      // A GPU rounds the weights in its first pass; dry passes do not include this.
      const ObservedPasses expected = dry.pass(batch);
      EXPECT_FALSE(pass.forward.empty()) << node.name;
      EXPECT_EQ(texts_of(expected.forward), texts_of(passes.back().forward)) << node.name;
      EXPECT_EQ(texts_of(expected.backward), texts_of(passes.back().backward)) << node.name;
      EXPECT_EQ(texts_of(expected.packs), texts_of(pass.packs)) << node.name;
      EXPECT_GT(pass.forward_ms, 0) << node.name;
      EXPECT_NEAR(pass.forward_ms, sum_ms(pass.forward), 1e-9) << node.name;
    }
    if (node.trained()) {
      const ObservedStepEnd expected = dry.step_end();
      EXPECT_EQ(texts_of(expected.norm), texts_of(end.norm)) << node.name;
      EXPECT_EQ(texts_of(expected.step), texts_of(end.step)) << node.name;
    }
    std::vector<double> whole;
    call_on(*device, [&] {
      whole = real->whole_passes(batch, 3);
      real.reset();
    }).get();
    EXPECT_THAT(whole, ::testing::SizeIs(3));
    EXPECT_THAT(whole, ::testing::Each(::testing::Gt(0)));
  }
  EXPECT_GE(seen.size(), 3U);
  device->stop();
}

std::vector<DeviceCase> cases() {
  return {{"distillation", distillation_job, {}},
          {"bf16", distillation_job, {"teacher.precision=bf16", "student.precision=bf16", "plain.precision=bf16"}},
          {"recompute", distillation_job, {"plain.recompute=1"}},
          {"adapters", distillation_job, {"plain.lora={rank=2}", "plain.weights=random"}},
          {"pictures", vision_job, {}},
          {"frozen_llm", vision_job, {"llm.trained=false", "llm.weights=random"}}};
}

INSTANTIATE_TEST_SUITE_P(cases, DeviceProbes, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

class DevicePlanner : public ::testing::Test {
 protected:
  JobPlanner planner(const std::string& job, PlannedMachine machine) {
    JobPlannerOptions options;
    options.machine = std::move(machine);
    prices_.set_gpus(options.machine.device);
    std::vector<std::string> small;
    for (const std::string section : {"teacher", "student", "plain"}) {
      small.insert(small.end(), {section + ".heads=2", section + ".width=32", section + ".layers=1"});
    }
    return JobPlanner(
        [job, small](const std::vector<std::string>& settings) {
          std::vector<std::string> all = small;
          all.insert(all.end(), settings.begin(), settings.end());
          return plan_of(job, all);
        },
        options, prices_);
  }
  /// Prices the calls of layouts by their work; on a share of a GPU each takes `slower(share)` times as long.
  void price(const std::function<double(double share)>& slower) {
    prices_ = {};
    prices_.set_gpus("double");
    const std::vector<std::string> sections{"teacher", "student", "plain"};
    for (const std::string degree : {"", "tensor", "context"}) {
      std::vector<std::string> settings;
      for (const std::string& section : sections) {
        if (degree.empty()) continue;
        settings.push_back(section + "." + degree + "=2");
        settings.push_back(section + R"(.devices=["cuda:0", "cuda:1"])");
      }
      const ResolvedJob plan = plan_of(distillation_job, on_gpus(distillation_job, settings));
      for (const std::string& section : sections) price(plan, *plan.graph.find(section), slower);
    }
  }

  MachinePrices prices_;

 private:
  void price(const ResolvedJob& plan, SectionId section, const std::function<double(double share)>& slower) {
    ProbeSite dry;
    dry.own_memory = true;
    PassProbe probe(probed_section(plan, section), LayoutRank(0), dry);
    const ObservedPasses passes = probe.pass(batches_of(plan, section, first_steps(plan, 1).front().samples).front());
    std::vector<std::vector<ObservedCall>> all{passes.forward, passes.backward};
    if (plan.graph.node(section).trained()) {
      const ObservedStepEnd end = probe.step_end();
      all.insert(all.end(), {end.add_ranks, end.norm, end.step});
    }
    for (const std::vector<ObservedCall>& calls : all) {
      for (const auto& [call, unused] : calls) {
        const double work = 1e-7 * (call.flops + call.bytes);
        prices_.alone.add(call, work);
        prices_.busy.add(call, work);
        for (std::size_t part = 0; part < measured_shares.size(); ++part) {
          prices_.parts[part].add(call, work * slower(measured_shares[part]));
        }
      }
    }
  }
};

TEST_F(DevicePlanner, a_profile_of_gpus_has_calls_groups_and_shares) {
  JobPlanner made =
      planner(distillation_job + "share = 0.5\ndevices = [\"cuda:0\"]\n", planned_gpus(cuda_status(), gpus));
  SectionProfiler profiler(made.machine(), {std::chrono::milliseconds(0), 1, true});
  made.measure(profiler, [](const std::string&) {});
  std::set<std::string> seen;
  for (const auto& [call, ms] : prices_.alone.measured()) {
    seen.insert(call.op);
    EXPECT_GT(ms, 0) << text_of(call);
    const bool of_group = call.op == "reduce_scatter" || call.op == "all_gather";
    EXPECT_TRUE(of_group || prices_.parts.front().has(call)) << text_of(call);
  }
  for (const char* const op : {"linear", "linear_backward_weight", "adamw", "reduce_scatter", "all_gather"}) {
    EXPECT_THAT(seen, Contains(op));
  }
  EXPECT_GT(prices_.alone.exchange_ms(4000, gpus, 1), 0);
  const LayoutRanking found = made.rank();
  EXPECT_EQ(found.best.front().kind, "cuda");
  EXPECT_THAT(found.best.front().settings, Contains(HasSubstr("devices=[\"cuda:")));
}

TEST_F(DevicePlanner, a_layout_that_needs_more_than_its_memory_is_left_out) {
  PlannedMachine machine = planned_gpus(cuda_status(), gpus);
  price([](double share) { return 1 / share; });
  JobPlanner roomy = planner(distillation_job, machine);
  const LayoutRanking all = roomy.rank();
  ASSERT_GT(all.best.size(), 5U);
  double most = 0;  // bytes on both GPUs with the best layout
  for (const RankedLayout& ranked : all.best) most = std::max(most, ranked.bytes);
  machine.memory_bytes = most / 2 / 0.92;
  const LayoutRanking tight = planner(distillation_job, machine).rank();
  for (const RankedLayout& ranked : tight.best) EXPECT_LE(ranked.bytes, gpus * most / 2);
  machine.memory_bytes = 1000;
  try {
    (void)planner(distillation_job, machine).rank();
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no layout of the job fits into "));
    EXPECT_THAT(error.what(), HasSubstr("plain "));
  }
}

TEST_F(DevicePlanner, shares_are_chosen_where_parts_of_a_gpu_add_up_to_more) {
  const PlannedMachine one = planned_gpus(cuda_status(), 1);
  price([](double share) { return 1 / share; });
  JobPlanner proportional = planner(distillation_job, one);
  const LayoutRanking full = proportional.rank();
  EXPECT_TRUE(full.best.front().shares_of_devices.empty());
  EXPECT_GT(full.filled, 0.73) << "all calls have the best rate";
  const auto less_than_proportional = [](double share) { return 1 / std::sqrt(share); };
  price(less_than_proportional);
  JobPlanner contended = planner(distillation_job, one);
  EXPECT_TRUE(contended.rank().best.front().shares_of_devices.empty())
      << "beside each other they do no more than alone";
  price(less_than_proportional);
  prices_.alone.add({"linear", DType::f32, {1}, 1e12, 1e12}, 1);  // fills a GPU; the sections' calls do not
  JobPlanner filled = planner(distillation_job, one);
  const LayoutRanking found = filled.rank();
  const RankedLayout& best = found.best.front();
  ASSERT_EQ(best.shares_of_devices.size(), 3U);
  double sum = 0;
  for (const auto& [section, share] : best.shares_of_devices) sum += share;
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_THAT(best.settings, Contains(HasSubstr("student.share=0.")));
  EXPECT_LE(found.least_bound_ms, best.step_ms);
  EXPECT_THAT(found.alternatives, Contains(::testing::Field(&Alternative::change, HasSubstr(".share = 0.5"))));
  EXPECT_EQ(found.filled, 0);
  EXPECT_EQ(found.alternatives.back().change, "share = 1");
  EXPECT_GT(found.alternatives.back().step_ms, best.step_ms);
  JobPlanner given = planner(distillation_job + "share = 0.5\ndevices = [\"cuda:0\"]\n", one);
  EXPECT_FALSE(given.chooses_shares()) << "the job has shares of its own";
  const LayoutRanking of_given = given.rank();
  EXPECT_GT(of_given.best.front().passes_ms.at("plain"), 0);
  try {
    (void)planner(distillation_job + "share = 0.3\ndevices = [\"cuda:0\"]\n", one);
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("plain.share = 0.3: plan measures the shares 0.25, 0.5 and 0.75"));
  }
}

TEST_F(DevicePlanner, shares_are_measured_for_sections_that_do_not_fill_their_gpu) {
  price([](double) { return 1.0; });
  prices_.parts = {};
  const PlannedMachine one = planned_gpus(cuda_status(), 1);
  SectionProfiler profiler(one, {std::chrono::milliseconds(0), 1, true});
  std::vector<std::string> lines;
  const auto ranking = [&] {
    return planner(distillation_job, one).rank(&profiler, [&](const std::string& line) { lines.push_back(line); });
  };
  EXPECT_GT(ranking().filled, 0.73);
  EXPECT_THAT(lines, ::testing::IsEmpty());
  prices_.alone.add({"linear", DType::f32, {1}, 1e12, 1e12}, 1);  // fills a GPU; the sections' calls do not
  EXPECT_THAT(planner(distillation_job, one).rank().alternatives,
              ::testing::Not(Contains(::testing::Field(&Alternative::change, HasSubstr("share")))))
      << "without a profiler";
  EXPECT_THAT(ranking().alternatives, Contains(::testing::Field(&Alternative::change, HasSubstr("share"))));
  EXPECT_THAT(lines, ::testing::SizeIs(3));
  EXPECT_THAT(lines, Contains(::testing::MatchesRegex("student: micro-batches of [0-9]+ on shares of a GPU")));
  for (const CallPrices& part : prices_.parts) EXPECT_FALSE(part.empty());
}

TEST(RehearsalOnGpus, sections_of_a_common_gpu_share_it_unless_their_times_have_it_already) {
  const ResolvedJob plan = plan_of(distillation_job, on_gpus(distillation_job));
  JobTimes times;
  times.pass = [&plan](const MicroBatchPlan& batch) {
    const GraphNode& node = plan.graph.node(batch.section);
    if (node.role == Role::source) return PassCost{0, 0};
    return node.trained() ? PassCost{3, 6} : PassCost{2, 0};
  };
  times.action = [](SectionId, StepAction) { return 0.0; };
  times.write = [](SectionId, SectionId, std::int64_t) { return 0.0; };
  const std::vector<TracedUnit> units = first_steps(plan, 16);
  const auto step_ms = [&](DeviceSharing sharing) {
    times.sharing = sharing;
    return rehearse_steps(plan, units, times).value_or_throw().time.period_ms();
  };
  const auto batches = [&](const char* section) {
    return static_cast<double>(batches_of(plan, *plan.graph.find(section), units.front().samples).size());
  };
  const double of_student = 9.0 * batches("student");
  const double of_all = of_student + 9.0 * batches("plain") + 2.0 * batches("teacher");
  EXPECT_GT(step_ms(DeviceSharing::turns), 2 * of_student) << "student and plain, and the teacher comes on top";
  EXPECT_NEAR(step_ms(DeviceSharing::streams), of_all, 1e-6) << "the GPU is never idle";
  EXPECT_NEAR(step_ms(DeviceSharing::measured), of_student, 1e-6);
}

TEST(PlannedMachine, more_gpus_than_there_are_is_an_error) {
  const auto all = static_cast<std::int64_t>(cuda_status().devices());
  EXPECT_EQ(planned_gpus(cuda_status(), 0).devices, all);
  EXPECT_GT(planned_gpus(cuda_status(), 0).memory_bytes, 0);
  EXPECT_THROW((void)planned_gpus(cuda_status(), all + 1), JobError);
  CudaStatus none;
  none.missing = "no NVIDIA driver";
  try {
    (void)planned_gpus(none, 0);
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(), "no GPU to plan for: no NVIDIA driver");
  }
}

}  // namespace
}  // namespace maestro::testing
