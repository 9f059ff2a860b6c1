// SPDX-License-Identifier: Apache-2.0
// Plans with replicas of a section on two pools.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "actors/job/job_probes.hpp"
#include "apps/plan/cluster_places.hpp"
#include "apps/plan/cluster_planner.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

const std::string lm_job = R"(
[train]
global_batch = 32
[data]
kind = "synthetic"
vocabulary = 40
sequence = 12
[plain]
family = "llama"
layers = 2
width = 16
heads = 4
vocabulary = 40
positions = 12
tensor = 1
context = 1
pipeline = 1
zero = false
)";

/// Returns the plan of a language model, on emulated devices unless the settings name others.
ResolvedJob lm_plan(std::vector<std::string> settings) {
  const auto names_devices = [](const std::string& each) { return each.starts_with("plain.devices="); };
  if (std::ranges::none_of(settings, names_devices)) settings.emplace_back("plain.devices=[\"emulated\"]");
  std::ostringstream out;
  Console console({out, out, false, {}});
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  App app(JobDocument::parse(lm_job, "job.toml", settings), options, console);
  app.source("corpus");
  app.section("plain", "decoder_lm");
  for (const char* const port : {"tokens", "targets"}) app.connect({"corpus", port}, {"plain", port});
  return app.plan();
}

/// Returns two pools of one host each; the second pool's devices have a fraction of the speed.
DescribedCluster two_pools(std::int64_t fast, std::int64_t slow, double speed) {
  DescribedCluster cluster;
  cluster.name = "two pools";
  for (const auto& [name, devices, by] : {std::tuple("new", fast, 1.0), std::tuple("old", slow, speed)}) {
    DescribedPool pool;
    pool.name = pool.kind = name;
    pool.memory_bytes = 1e9;
    pool.bf16_flops_per_ms = pool.fp32_flops_per_ms = 1e7 * by;
    pool.memory_bytes_per_ms = 1e8 * by;
    pool.hosts = 1;
    pool.devices_of_host = devices;
    pool.inside = {1e9, 0.0001};
    pool.network = {4e9 * by, 0.0001};
    pool.price_per_hour = 10 * by;
    cluster.pools.push_back(pool);
  }
  cluster.between = DescribedLink{1e9, 0.001};
  return cluster;
}

/// Finds the shortest step over all layouts, numbers of replicas on both pools and shares of the micro-batches.
class Exhaustive {
 public:
  Exhaustive(const DescribedCluster& cluster, std::int64_t most_samples) : cluster_(cluster) {
    for (std::int64_t samples = 1; samples <= most_samples; samples *= 2) {
      const ResolvedJob plan = lm_plan({"plain.replicas=1", "plain.micro_batch=" + std::to_string(samples)});
      const std::vector<SampleRef> step = first_steps(plan, 1).front().samples;
      for (std::size_t pool = 0; pool < 2; ++pool) price(plan, step, pool);
      for (std::int64_t fast = 0; fast <= cluster.pools[0].devices(); ++fast) {
        for (std::int64_t slow = 0; slow <= cluster.pools[1].devices(); ++slow) consider(fast, slow);
      }
    }
  }
  double of_one_pool_ms = std::numeric_limits<double>::infinity();
  double of_both_ms = std::numeric_limits<double>::infinity();

 private:
  struct Times {
    double batch_ms = 0, end_ms = 0, step_ms = 0;
  };

  void price(const ResolvedJob& plan, const std::vector<SampleRef>& step, std::size_t pool) {
    const SectionId section = plan.graph.stages_of("plain").front();
    const DescribedPrices prices(cluster_.pools[pool]);
    PricedPasses passes;
    PricedTimes times(plan, step, prices, 0, passes);
    const std::vector<MicroBatchPlan> batches = batches_of(plan, section, step);
    batches_ = std::ssize(batches);
    const PassCost first = times.pass(batches.front());
    const PassCost last = times.pass(batches.back());
    ASSERT_NEAR(first.forward + first.backward, last.forward + last.backward, 1e-9) << "all are equal";
    times_[pool] = {first.forward + first.backward,
                    times.action(section, StepAction::add_ranks) + times.action(section, StepAction::norm),
                    times.action(section, StepAction::step)};
    gradient_bytes_ = sizeof(float) * static_cast<double>(times.probe(section).runner().gradients().size());
  }

  void consider(std::int64_t fast, std::int64_t slow) {
    if (fast + slow == 0 || fast + slow > batches_) return;
    double passes_ms = std::numeric_limits<double>::infinity();
    for (std::int64_t on_fast = 0; on_fast <= batches_; ++on_fast) {
      passes_ms = std::min(passes_ms, std::max(rounds_ms(on_fast, fast, 0), rounds_ms(batches_ - on_fast, slow, 1)));
    }
    std::vector<PoolShare> shares;
    if (fast > 0) shares.push_back({0, fast, 0});
    if (slow > 0) shares.push_back({1, slow, 0});
    double end = 0;
    double rate = 0;
    double step = 0;
    for (const PoolShare& share : shares) {
      const double part = static_cast<double>(share.replicas) / times_[share.pool].batch_ms;
      end += part * times_[share.pool].end_ms;
      rate += part;
      step = std::max(step, times_[share.pool].step_ms);
    }
    const double exchange = 2 * exchange_prices(cluster_, shares).exchange_ms(gradient_bytes_, fast + slow, 1);
    double& best = shares.size() > 1 ? of_both_ms : of_one_pool_ms;
    best = std::min(best, passes_ms + end / rate + step + exchange);
  }

  double rounds_ms(std::int64_t batches, std::int64_t replicas, std::size_t pool) const {
    if (batches == 0) return 0;
    if (replicas == 0) return std::numeric_limits<double>::infinity();
    return static_cast<double>((batches + replicas - 1) / replicas) * times_[pool].batch_ms;
  }

  const DescribedCluster cluster_;
  std::array<Times, 2> times_;
  std::int64_t batches_ = 0;
  double gradient_bytes_ = 0;
};

ClusterPlannerOptions options() {
  ClusterPlannerOptions options;
  options.varied = {"devices", "micro_batch"};
  options.hop_ms = 0;
  return options;
}

TEST(SpreadReplicas, have_the_least_bound_of_all_layouts_on_two_small_pools) {
  int both = 0;
  for (const auto& [fast, slow, speed] : {std::tuple(4, 4, 0.5), std::tuple(2, 6, 0.3), std::tuple(1, 1, 0.9),
                                          std::tuple(3, 5, 1.0), std::tuple(6, 2, 0.2), std::tuple(4, 4, 0.02)}) {
    const DescribedCluster cluster = two_pools(fast, slow, speed);
    const Exhaustive all(cluster, 32);
    ClusterPlanner planner(lm_plan, cluster, options());
    const ClusterChoice chosen = planner.choose();
    const std::string what = std::to_string(fast) + " and " + std::to_string(slow) + " of " + std::to_string(speed);
    EXPECT_NEAR(chosen.least_bound_ms, std::min(all.of_one_pool_ms, all.of_both_ms), 1e-9 * all.of_one_pool_ms) << what;
    EXPECT_GE(chosen.played.step_ms, chosen.least_bound_ms * (1 - 1e-9)) << what;
    const ClusterLayout& on = chosen.sections.at("plain");
    both += on.more.empty() ? 0 : 1;
    if (all.of_both_ms > all.of_one_pool_ms) {
      EXPECT_TRUE(on.more.empty()) << what;
    }
  }
  EXPECT_GE(both, 3);
}

TEST(SpreadReplicas, are_written_with_a_speed_a_device_and_a_process_each) {  // LS-1
  const DescribedCluster cluster = two_pools(4, 4, 0.5);
  ClusterPlanner planner(lm_plan, cluster, options());
  const ClusterChoice chosen = planner.choose();
  const ClusterLayout& on = chosen.sections.at("plain");
  ASSERT_EQ(on.more.size(), 1U);
  const std::vector<PoolShare> shares = on.shares();
  EXPECT_EQ(shares[0].pool, 0U);
  EXPECT_EQ(shares[1].pool, 1U);
  EXPECT_EQ(shares[0].replicas + shares[1].replicas, on.layout.replicas);
  EXPECT_EQ(chosen.devices, on.layout.devices());
  EXPECT_EQ(chosen.hosts, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(chosen.price_per_hour, 15);
  std::vector<std::string> settings;
  for (const std::string& setting : chosen.settings) {
    if (!setting.starts_with("plain.devices=") && !setting.starts_with("plain.processes=")) settings.push_back(setting);
  }
  const ResolvedJob plan = lm_plan(settings);
  const SectionConfig& config = plan.sections[plan.graph.stages_of("plain").front().value()].config;
  ASSERT_EQ(std::ssize(config.replica_speeds), on.layout.replicas);
  EXPECT_EQ(config.replica_speed(0), 1);
  EXPECT_NEAR(config.replica_speeds.back(), shares[1].rate / shares[0].rate, 6e-4);
  EXPECT_NEAR(config.replica_speeds.back(), 0.5, 0.1);
  const JobDocument written = JobDocument::parse("", "job", chosen.settings);
  const JobTable table = written.root().table("plain");
  EXPECT_EQ(std::ssize(table.texts("devices", {})), on.layout.devices());
  const std::vector<std::int64_t> processes = table.integers("processes");
  ASSERT_EQ(std::ssize(processes), on.layout.replicas);
  for (std::int64_t replica = 0; replica < on.layout.replicas; ++replica) {
    EXPECT_EQ(processes[static_cast<std::size_t>(replica)], replica < shares[0].replicas ? 0 : 1) << replica;
  }
}

TEST(SpreadReplicas, are_faster_than_either_pool_alone_and_never_cost_more_than_they_may) {
  const DescribedCluster cluster = two_pools(4, 4, 0.5);
  const double both_ms = ClusterPlanner(lm_plan, cluster, options()).choose().played.step_ms;
  for (const DescribedPool& pool : cluster.pools) {
    DescribedCluster alone = cluster;
    alone.pools = {pool};
    EXPECT_GT(ClusterPlanner(lm_plan, alone, options()).choose().played.step_ms, both_ms * 1.1) << pool.name;
  }
  ClusterPlannerOptions bounded = options();
  bounded.most_per_hour = 12;
  const ClusterChoice cheaper = ClusterPlanner(lm_plan, cluster, bounded).choose();
  EXPECT_LE(cheaper.price_per_hour, 12);
  EXPECT_TRUE(cheaper.sections.at("plain").more.empty()) << "both pools cost 15";
}

TEST(SpreadReplicas, of_many_devices_make_equal_parts_and_are_as_fast_as_their_bound) {
  DescribedCluster cluster = two_pools(6, 6, 0.3);
  for (DescribedPool& pool : cluster.pools) pool.hosts = 43;
  const auto resolve = [](std::vector<std::string> settings) {
    settings.insert(settings.end(), {"train.global_batch=4096", "plain.tensor=2"});
    return lm_plan(std::move(settings));
  };
  const ClusterChoice chosen = ClusterPlanner(resolve, cluster, options()).choose();
  const std::vector<PoolShare> shares = chosen.sections.at("plain").shares();
  ASSERT_EQ(shares.size(), 2U);
  for (const PoolShare& share : shares) EXPECT_EQ(share.replicas, 128) << "of 129, as 516 devices make two parts";
  EXPECT_GE(chosen.played.step_ms, chosen.least_bound_ms * (1 - 1e-9));
  EXPECT_LE(chosen.played.step_ms, chosen.bound_ms * 1.05);
}

TEST(SpreadReplicas, of_thousands_have_speeds_in_lines_that_a_job_may_have) {
  const std::vector<std::string> speeds(6000, "0.831");
  const JobDocument job = JobDocument::parse("", "job", {"a.speed=" + list_text(speeds)});
  EXPECT_EQ(job.root().table("a").numbers("speed").size(), 6000U);
}

TEST(SpreadReplicas, leave_a_speed_that_the_job_gives) {
  const auto given = [](std::vector<std::string> settings) {
    settings.emplace_back("plain.speed=0.5");
    return lm_plan(std::move(settings));
  };
  const DescribedCluster cluster = two_pools(4, 4, 0.5);
  EXPECT_TRUE(ClusterPlanner(given, cluster, options()).choose().sections.at("plain").more.empty());
}

TEST(SpreadReplicas, of_a_section_among_others_leave_each_its_devices) {  // CY-1, CB-1, CB-2
  DescribedCluster cluster = two_pools(4, 20, 0.6);
  cluster.pools[1].hosts = 5;
  cluster.pools[1].devices_of_host = 4;
  const auto resolve = [](std::vector<std::string> settings) {
    settings.emplace_back("train.global_batch=32");
    return plan_on_emulated(distillation_job, std::move(settings));
  };
  ClusterPlanner planner(resolve, cluster, options());
  const ClusterChoice chosen = planner.choose();
  EXPECT_GE(chosen.played.step_ms, chosen.least_bound_ms * (1 - 1e-9));
  const ClusterPlaces places(cluster, chosen.sections);
  for (std::size_t pool = 0; pool < 2; ++pool) EXPECT_LE(places.devices()[pool], cluster.pools[pool].devices());
  std::map<std::pair<std::int64_t, std::string>, std::size_t> groups;  // by process and device
  for (const auto& [section, on] : chosen.sections) {
    const JobTable table = JobDocument::parse("", "job", chosen.settings).root().table(section);
    const std::vector<std::string> devices = table.texts("devices", {});
    const std::vector<std::int64_t> processes = table.integers("processes");
    const auto ranks = static_cast<std::size_t>(on.layout.tensor * on.layout.context);
    ASSERT_EQ(std::ssize(devices), on.layout.devices()) << section;
    ASSERT_EQ(processes.size() * ranks, devices.size()) << section;
    std::size_t at = 0;
    for (const PoolShare& share : on.shares()) {
      const std::int64_t first = share.pool == 0 ? 0 : chosen.hosts[0];
      for (std::int64_t of_part = share.replicas * on.layout.devices() / on.layout.replicas; of_part > 0; --of_part) {
        EXPECT_GE(processes[at / ranks], first) << section;
        EXPECT_LT(processes[at / ranks], first + chosen.hosts[share.pool]) << section;
        const auto [user, fresh] = groups.try_emplace({processes[at / ranks], devices[at]}, on.group);
        EXPECT_TRUE(fresh || user->second == on.group) << section << " " << at;
        ++at;
      }
    }
  }
  EXPECT_TRUE(std::ranges::any_of(chosen.sections, [](const auto& entry) { return !entry.second.more.empty(); }));
}

}  // namespace
}  // namespace maestro::testing
