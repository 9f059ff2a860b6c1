// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_part.hpp"

#include <gtest/gtest.h>

#include "actors/job/job_probes.hpp"
#include "apps/plan/cluster_places.hpp"
#include "apps/plan/cluster_rehearsal.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

ClusterLayout on(std::int64_t replicas, std::int64_t micro_batch, std::size_t group = 0) {
  ClusterLayout layout;
  layout.layout.replicas = replicas;
  layout.layout.micro_batch = micro_batch;
  layout.group = group;
  return layout;
}

TEST(ClusterPart, has_an_equal_share_of_the_replicas_and_micro_batches) {  // CU-1
  const ClusterLayouts layouts{{"a", on(64, 1)}, {"b", on(256, 2)}, {"c", on(96, 4)}};
  EXPECT_EQ(equal_parts(layouts, 1536, 16), 4) << "64 replicas make 4 times 16";
  EXPECT_EQ(equal_parts(layouts, 1536, 2), 32);
  EXPECT_EQ(equal_parts(layouts, 1536, 1), 32) << "the replicas of c have no larger divisor with the others'";
  EXPECT_EQ(equal_parts(layouts, 1544, 2), 2) << "193 samples are no whole micro-batches of c";
  const ClusterLayouts part = part_of(layouts, 4);
  for (const auto& [section, of] : layouts) {
    EXPECT_EQ(part.at(section).layout.replicas * 4, of.layout.replicas) << section;
    EXPECT_EQ(part.at(section).layout.micro_batch, of.layout.micro_batch) << section;
  }
}

TEST(ClusterPart, is_the_whole_where_there_are_no_equal_parts) {
  EXPECT_EQ(equal_parts({{"a", on(47, 1)}, {"b", on(216, 1)}}, 4096, 1), 1);
  EXPECT_EQ(equal_parts({{"a", on(31, 1)}}, 31, 16), 1);
}

TEST(ClusterPart, of_a_section_on_several_pools_has_an_equal_share_of_each) {  // CU-1
  ClusterLayout spread = on(96, 1);
  spread.more.push_back({1, 32, 1});
  EXPECT_EQ(equal_parts({{"a", spread}}, 192, 1), 32);
  const ClusterLayout part = part_of({{"a", spread}}, 8).at("a");
  EXPECT_EQ(part.layout.replicas, 12);
  EXPECT_EQ(part.more, (std::vector<PoolShare>{{1, 4, 1}}));
  spread.more.front().replicas = 31;
  EXPECT_EQ(equal_parts({{"a", spread}}, 192, 1), 1) << "65 replicas on one pool and 31 on the other";
}

TEST(ClusterPart, samples_are_equal_only_if_all_of_all_steps_are) {
  std::string job = distillation_job;
  EXPECT_TRUE(equal_samples(first_steps(plan_of(job), 3)));
  const std::string sizes = "sequence = 12";
  job.replace(job.find(sizes), sizes.size(), "lengths = [[4, 1], [8, 0.6], [12, 0.3]]");
  EXPECT_FALSE(equal_samples(first_steps(plan_of(job), 3)));
}

enum class Devices { shared, apart, of_two_pools };

/// Layouts for the distillation on 64 devices per section, rehearsed in full and by a part.
class RehearsedPart : public ::testing::TestWithParam<Devices> {
 protected:
  static constexpr std::int64_t samples = 256;
  RehearsedPart() {
    cluster_.pools.resize(1);
    DescribedPool& pool = cluster_.pools.front();
    pool.memory_bytes = 1e9;
    pool.bf16_flops_per_ms = pool.fp32_flops_per_ms = 1e5;  // slow, so that a pass takes milliseconds
    pool.memory_bytes_per_ms = 1e7;
    pool.hosts = 48;
    pool.devices_of_host = 4;
    pool.inside = pool.network = {4e9, 0.0001};
    const bool shared = GetParam() == Devices::shared;
    layouts_ = {
        {"teacher", on(64, 1, 0)}, {"student", on(64, 2, shared ? 0 : 1)}, {"plain", on(32, 1, shared ? 0 : 2)}};
    layouts_.at("plain").layout.pipeline = 2;
    if (GetParam() != Devices::of_two_pools) return;
    DescribedPool& slower = cluster_.pools.emplace_back(cluster_.pools.front());
    slower.bf16_flops_per_ms = slower.fp32_flops_per_ms = 5e4;
    ClusterLayout& teacher = layouts_.at("teacher");
    teacher.rate = 1;
    teacher.more.push_back({1, 16, 0.5});
  }
  [[nodiscard]] ResolvedJob resolved(const ClusterLayouts& layouts, std::int64_t batch) const {
    const ClusterPlaces places(cluster_, layouts);
    std::vector<std::string> settings{"train.global_batch=" + std::to_string(batch)};
    for (const auto& [section, of] : layouts) {
      settings.push_back(section + ".replicas=" + std::to_string(of.layout.replicas));
      settings.push_back(section + ".micro_batch=" + std::to_string(of.layout.micro_batch));
      settings.push_back(section + ".pipeline=" + std::to_string(of.layout.pipeline));
      settings.push_back(section + ".devices=" + places.emulated_devices(section));
      std::vector<std::string> speeds;
      for (const PoolShare& share : of.shares()) {
        speeds.insert(speeds.end(), static_cast<std::size_t>(share.replicas), std::to_string(share.rate));
      }
      if (!of.more.empty()) settings.push_back(section + ".speed=" + list_text(speeds));
    }
    return plan_of(distillation_job, settings);
  }
  DescribedCluster cluster_;
  ClusterLayouts layouts_;
};

TEST_P(RehearsedPart, takes_as_long_as_the_whole_and_waits_as_much) {
  const ResolvedJob base = plan_of(distillation_job, {"teacher.devices=[\"emulated\"]", "train.global_batch=256"});
  const ChosenKeys keys(base, {"devices"});
  LayoutCatalogue catalogue(cluster_, base, keys, 0.92, 0.001);
  const std::vector<TracedUnit> units = first_steps(base, 12);
  const std::int64_t parts = equal_parts(layouts_, samples, 4);
  ASSERT_EQ(parts, 8);
  const ClusterRehearsal whole(resolved(layouts_, samples), layouts_, cluster_, units, catalogue, 0.001);
  const ClusterRehearsal part(resolved(layouts_, samples), layouts_, cluster_, units, catalogue, 0.001,
                              ClusterPart{resolved(part_of(layouts_, parts), samples / parts), part_of(layouts_, parts),
                                          part_of(units, parts)});
  EXPECT_EQ((part.passes() - 1) * static_cast<std::size_t>(parts), whole.passes() - 1) << "but for the corpus";
  const PlayedLayouts all = whole.play();
  const PlayedLayouts some = part.play();
  EXPECT_NEAR(some.step_ms, all.step_ms, 0.02 * all.step_ms);
  for (const auto& [section, shares] : all.shares) {
    EXPECT_NEAR(some.shares.at(section).passes, shares.passes, 0.1) << section << " may run ahead";
    EXPECT_NEAR(some.shares.at(section).step_ends, shares.step_ends, 0.02) << section;
  }
  RehearsalChange slower;
  slower.faster["teacher"] = 0.1;
  const double all_ms = whole.play(slower).step_ms;
  EXPECT_GT(all_ms, all.step_ms);
  EXPECT_NEAR(part.play(slower).step_ms, all_ms, 0.02 * all_ms);
}

std::string name_of(const ::testing::TestParamInfo<Devices>& test) {
  return test.param == Devices::shared ? "shared" : test.param == Devices::apart ? "apart" : "of_two_pools";
}

INSTANTIATE_TEST_SUITE_P(Cases, RehearsedPart,
                         ::testing::Values(Devices::shared, Devices::apart, Devices::of_two_pools), name_of);

TEST(EqualBatches, are_the_micro_batches_of_a_step_counted) {
  for (const std::string& job : {distillation_job, vision_job}) {
    const ResolvedJob plan = plan_of(job);
    const std::vector<SampleRef> samples = first_steps(plan, 1).front().samples;
    for (std::uint32_t number = 0; number < plan.graph.nodes().size(); ++number) {
      if (plan.graph.nodes()[number].role == Role::source) continue;
      const std::vector<MicroBatchPlan> batches = batches_of(plan, SectionId(number), samples);
      auto batch = batches.begin();
      for (const EqualBatches& run : equal_batches_of(plan, SectionId(number), samples)) {
        EXPECT_EQ(run.first.index, batch->index);
        for (std::int64_t at = 0; at < run.count; ++at, ++batch) {
          ASSERT_NE(batch, batches.end());
          EXPECT_TRUE(std::ranges::equal(batch->samples, run.first.samples,
                                         [](const auto& one, const auto& other) { return one.same_size(other); }));
        }
      }
      EXPECT_EQ(batch, batches.end());
    }
  }
}

}  // namespace
}  // namespace maestro::testing
