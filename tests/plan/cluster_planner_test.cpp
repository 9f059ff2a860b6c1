// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_planner.hpp"

#include <gmock/gmock.h>

#include "apps/plan/cluster_places.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ClusterPlannerTest : public ::testing::Test {
 protected:
  ClusterPlannerTest() {
    cluster_.name = "a cluster";
    pool().kind = "fast";
    pool().memory_bytes = 1e9;
    pool().bf16_flops_per_ms = 1e8;
    pool().fp32_flops_per_ms = 1e8;
    pool().memory_bytes_per_ms = 1e9;
    pool().hosts = 4;
    pool().devices_of_host = 4;
    pool().inside = {1e9, 0.0001};
    pool().network = {4e9, 0.0001};
  }
  DescribedPool& pool() { return cluster_.pools.front(); }
  ClusterPlanner planner(const std::string& job, const std::string& kept = {}, std::set<std::string> varied = {}) {
    ClusterPlannerOptions options = options_;
    options.kept = kept;
    options.hop_ms = 0;
    options.varied = std::move(varied);
    options.varied.insert("devices");
    return ClusterPlanner([job](const std::vector<std::string>& settings) { return plan_on_emulated(job, settings); },
                          cluster_, options);
  }
  /// Returns the numbers in a setting's list: "teacher.processes=[0, 1]".
  static std::vector<int> numbers(const ClusterChoice& choice, const std::string& key) {
    std::vector<int> found;
    for (const std::string& setting : choice.settings) {
      if (!setting.starts_with(key + "=")) continue;
      std::string digits;
      for (const char letter : setting.substr(key.size()) + " ") {
        if (std::isdigit(letter) != 0) {
          digits += letter;
        } else if (!digits.empty()) {
          found.push_back(std::stoi(std::exchange(digits, "")));
        }
      }
    }
    return found;
  }
  /// Checks that sections in different groups share no device, and that the processes of a pool follow the processes of
  /// the pools before it.
  void expect_places(const ClusterChoice& choice) const {
    std::map<std::pair<int, int>, std::size_t> groups;  // by process and device
    std::map<std::size_t, double> bytes;                // bytes on a device, by group
    for (const auto& [section, on] : choice.sections) {
      EXPECT_LE(bytes[on.group] += on.bytes, 0.92e9);
      const std::vector<int> devices = numbers(choice, section + ".devices");
      const std::vector<int> processes = numbers(choice, section + ".processes");
      const auto ranks = static_cast<std::size_t>(on.layout.tensor * on.layout.context);
      ASSERT_EQ(devices.size(), static_cast<std::size_t>(on.layout.devices())) << section;
      ASSERT_EQ(processes.size() * ranks, devices.size()) << section;
      const auto first = on.pool == 0 ? 0 : choice.hosts[0];
      for (std::size_t at = 0; at < devices.size(); ++at) {
        EXPECT_GE(processes[at / ranks], first) << section;
        EXPECT_LT(processes[at / ranks], first + choice.hosts[on.pool]) << section;
        EXPECT_LT(devices[at], cluster_.pools[on.pool].devices_of_host);
        const auto [user, fresh] = groups.try_emplace({processes[at / ranks], devices[at]}, on.group);
        EXPECT_TRUE(fresh || user->second == on.group) << section << " " << at;
      }
    }
    EXPECT_LE(static_cast<std::int64_t>(groups.size()), choice.devices);
  }
  DescribedCluster cluster_{{}, {{}}, {}};
  ClusterPlannerOptions options_;
};

TEST_F(ClusterPlannerTest, groups_of_sections_have_places_of_their_own_in_the_hosts) {  // CY-1, LX-1
  const ClusterChoice choice = planner(distillation_job, "", {"micro_batch"}).choose();
  EXPECT_LE(choice.devices, 16);
  EXPECT_GE(choice.played.step_ms, choice.least_bound_ms * 0.999);
  expect_places(choice);
}

TEST_F(ClusterPlannerTest, a_number_of_stages_that_the_job_gives_stands_though_it_is_no_power_of_two) {
  std::string job = distillation_job;
  job.replace(job.find("layers = 2", job.find("[plain]")), 10, "layers = 3\npipeline = 3");
  EXPECT_EQ(planner(job, "", {"micro_batch"}).choose().sections.at("plain").layout.pipeline, 3);
}

TEST_F(ClusterPlannerTest, a_choice_resolves_with_a_process_on_each_host) {
  for (const char* const stages : {"plain.pipeline=2", "plain.pipeline=1"}) {
    const std::string degree(stages);
    std::string job = distillation_job;
    job.insert(job.find("[plain]\n") + 8, degree.substr(6, 8) + " = " + degree.back() + "\n");
    const ClusterChoice choice = planner(job, "", {"micro_batch"}).choose();
    std::vector<std::string> settings;
    for (std::string setting : choice.settings) {  // cores instead of GPUs
      for (auto at = setting.find("cuda:"); at != std::string::npos; at = setting.find("cuda:")) {
        setting.replace(at, 4, "cpu");
      }
      settings.push_back(std::move(setting));
    }
    const ResolvedJob plan = plan_of(job, settings, "a,b,c,d");
    std::set<ProcessId> processes;
    for (const ReplicaPlacement& place : plan.places) processes.insert(place.process);
    EXPECT_GT(processes.size(), 1U) << degree;
  }
}

TEST_F(ClusterPlannerTest, the_same_cluster_gives_the_same_choice) {  // CY-2
  const ClusterChoice first = planner(distillation_job).choose();
  const ClusterChoice second = planner(distillation_job).choose();
  EXPECT_EQ(first.settings, second.settings);
  EXPECT_EQ(first.played.step_ms, second.played.step_ms);
}

TEST_F(ClusterPlannerTest, a_larger_cluster_is_never_slower_by_its_bound) {
  double before = std::numeric_limits<double>::infinity();
  for (const std::int64_t hosts : {1, 2, 4, 16, 250}) {
    pool().hosts = hosts;
    const ClusterChoice choice = planner(distillation_job).choose();
    EXPECT_LE(choice.least_bound_ms, before * (1 + 1e-9)) << hosts;
    before = choice.least_bound_ms;
  }
}

TEST_F(ClusterPlannerTest, the_kept_section_gets_the_fewest_others_that_it_does_not_wait_for) {
  std::string job = distillation_job;
  job.insert(job.find("[student]\n") + 10, "replicas = 2\ntensor = 1\ncontext = 1\npipeline = 1\nzero = false\n");
  const ClusterChoice choice = planner(job, "student").choose();
  EXPECT_EQ(choice.critical, "student");
  EXPECT_EQ(choice.sections.at("student").layout.replicas, 2);
  EXPECT_LE(choice.stall, 0.01 + 1e-9);
  EXPECT_GT(choice.sections.at("student").bound_ms, 0);
  EXPECT_LT(choice.devices, 16);
}

TEST_F(ClusterPlannerTest, sections_share_devices_that_are_too_few_for_one_each) {
  pool().hosts = 1;
  pool().devices_of_host = 2;
  const ClusterChoice choice = planner(distillation_job, "", {"micro_batch"}).choose();
  expect_places(choice);
  EXPECT_LE(choice.devices, 2);
  EXPECT_GE(choice.played.step_ms, choice.least_bound_ms * 0.999);
  double work_ms = 0;  // work of all sections; at least half is on one of the two devices
  for (const auto& [section, on] : choice.sections) work_ms += on.work_ms * static_cast<double>(on.layout.devices());
  EXPECT_GE(choice.played.step_ms, work_ms / 2 * 0.999);
}

TEST_F(ClusterPlannerTest, a_choice_names_its_rivals_and_how_long_passes_may_take_for_it_to_stay) {
  const ClusterChoice choice = planner(distillation_job, "", {"micro_batch"}).choose();
  ASSERT_FALSE(choice.rivals.empty());
  for (std::size_t at = 0; at < choice.rivals.size(); ++at) {
    const RivalDivision& rival = choice.rivals[at];
    EXPECT_NEAR(rival.more, rival.step_ms / choice.played.step_ms - 1, 1e-12) << rival.text;
    EXPECT_GE(rival.more, -0.01) << rival.text;
    EXPECT_GE(rival.step_ms, choice.least_bound_ms * 0.999) << rival.text;
    if (at > 0) {
      EXPECT_GE(rival.more, choice.rivals[at - 1].more);
    }
  }
  ASSERT_EQ(choice.certainties.size(), 3U);
  EXPECT_EQ(choice.certainties.front().section, choice.critical);
  for (const Certainty& of : choice.certainties) {
    EXPECT_GE(of.least, 0.7) << of.section;
    EXPECT_LE(of.least, 1) << of.section;
    EXPECT_GE(of.most, 1) << of.section;
    EXPECT_LE(of.most, 1.4) << of.section;
  }
}

TEST(ClusterPlaces, groups_share_from_their_first_device_on_and_stages_stay_on_a_host) {  // CB-1, CB-2
  DescribedCluster cluster;
  cluster.pools.resize(2);
  cluster.pools[0].hosts = 4;
  cluster.pools[0].devices_of_host = 4;
  cluster.pools[1].hosts = 2;
  cluster.pools[1].devices_of_host = 2;
  cluster.pools[1].price_per_hour = 3;
  const auto on = [](std::int64_t replicas, std::int64_t tensor, std::size_t pool, std::size_t group) {
    ClusterLayout made;
    made.layout.replicas = replicas;
    made.layout.tensor = tensor;
    made.pool = pool;
    made.group = group;
    return made;
  };
  const ClusterLayouts layouts{
      {"a", on(3, 1, 0, 0)}, {"b", on(1, 2, 0, 0)}, {"c", on(1, 4, 0, 1)}, {"d", on(3, 1, 1, 2)}};
  const ClusterPlaces places(cluster, layouts);
  EXPECT_EQ(places.devices(), (std::vector<std::int64_t>{8, 3})) << "c, then a and b on four, of whole pairs";
  EXPECT_EQ(places.hosts(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(places.price_per_hour(), 6);
  EXPECT_TRUE(places.shared("a"));
  EXPECT_FALSE(places.shared("c"));
  EXPECT_EQ(places.cuda_devices("c"), R"(["cuda:0", "cuda:1", "cuda:2", "cuda:3"])");
  EXPECT_EQ(places.processes("c"), "[0]");
  EXPECT_EQ(places.cuda_devices("a"), R"(["cuda:0", "cuda:1", "cuda:2"])");
  EXPECT_EQ(places.emulated_devices("b"), R"(["emulated:4", "emulated:5"])");
  EXPECT_EQ(places.processes("b"), "[1]");
  EXPECT_EQ(places.cuda_devices("d"), R"(["cuda:0", "cuda:1", "cuda:0"])");
  EXPECT_EQ(places.processes("d"), "[2, 2, 3]");
}

TEST(ClusterPlaces, lists_of_a_large_cluster_are_settings_of_a_job) {
  DescribedCluster cluster;
  cluster.pools.resize(1);
  cluster.pools[0].hosts = 1250;
  cluster.pools[0].devices_of_host = 8;
  ClusterLayouts layouts;
  layouts["a"].layout.replicas = 10000;
  const ClusterPlaces places(cluster, layouts);
  const JobDocument job =
      JobDocument::parse("", "job", {"a.devices=" + places.cuda_devices("a"), "a.processes=" + places.processes("a")});
  EXPECT_EQ(job.root().table("a").texts("devices", {}).size(), 10000U);
  EXPECT_EQ(job.root().table("a").integers("processes").back(), 1249);
}

/// A second pool with four hosts whose devices have a fraction of the speed, for a fraction of the price.
class PlansOfTwoPools : public ClusterPlannerTest {
 protected:
  PlansOfTwoPools() {
    pool().name = "a";
    pool().price_per_hour = 8;
    DescribedPool slower = pool();
    slower.name = "b";
    slower.kind = "slow";
    for (double* const figure : {&slower.bf16_flops_per_ms, &slower.fp32_flops_per_ms, &slower.memory_bytes_per_ms}) {
      *figure /= 2;
    }
    slower.price_per_hour = 3;
    cluster_.pools.push_back(slower);
  }
};

TEST_F(PlansOfTwoPools, no_point_of_the_front_is_slower_and_dearer_than_a_plan_of_one_pool) {  // AL-3
  const ClusterChoice both = planner(distillation_job).choose();
  ASSERT_GE(both.front.size(), 2U);
  EXPECT_GE(both.front.front().bound_ms, both.least_bound_ms);
  DescribedCluster all = cluster_;
  for (const DescribedPool& alone : all.pools) {
    cluster_.pools = {alone};
    const ClusterChoice single = planner(distillation_job).choose();
    EXPECT_GE(single.front.front().bound_ms, both.front.front().bound_ms * (1 - 1e-9)) << alone.name;
    for (const Allocation& point : single.front) {
      const bool matched = std::ranges::any_of(both.front, [&](const Allocation& other) {
        return other.bound_ms <= point.bound_ms * 1.05 && other.price_of_step() <= point.price_of_step() * 1.05;
      });
      EXPECT_TRUE(matched) << alone.name << " " << point.bound_ms;  // the front's times have steps of a twentieth
    }
  }
}

TEST_F(PlansOfTwoPools, the_cheapest_costs_less_a_step_and_a_budget_is_kept) {
  const ClusterChoice fastest = planner(distillation_job).choose();
  options_.cheapest = true;
  const ClusterChoice cheapest = planner(distillation_job).choose();
  EXPECT_LT(cheapest.price_per_hour * cheapest.bound_ms, fastest.price_per_hour * fastest.bound_ms);
  options_.cheapest = false;
  options_.most_per_hour = fastest.price_per_hour / 2;
  const ClusterChoice bounded = planner(distillation_job).choose();
  EXPECT_LE(bounded.price_per_hour, fastest.price_per_hour / 2);
  EXPECT_GT(bounded.least_bound_ms, fastest.least_bound_ms);
}

TEST_F(PlansOfTwoPools, hosts_of_a_pool_are_processes_behind_those_of_the_pools_before) {  // CY-1
  pool().hosts = 1;
  const ClusterChoice choice = planner(distillation_job).choose();
  expect_places(choice);
  EXPECT_GT(choice.hosts[0], 0);
  EXPECT_GT(choice.hosts[1], 0) << "both pools are in use";
}

TEST_F(PlansOfTwoPools, cells_have_the_best_of_each_kind_and_are_faster_with_more_devices) {
  const std::vector<ClusterCell> cells = planner(distillation_job).cells();
  std::map<std::size_t, std::vector<ClusterCell>> by_pool;
  for (const ClusterCell& cell : cells) by_pool[cell.pool].push_back(cell);
  ASSERT_EQ(by_pool.size(), 2U);
  for (const auto& [pool, of_pool] : by_pool) {
    for (std::size_t at = 0; at < of_pool.size(); ++at) {
      for (const auto& [section, on] : of_pool[at].sections) EXPECT_EQ(on.pool, pool);
      EXPECT_LE(ClusterPlaces(cluster_, of_pool[at].sections).devices()[pool], of_pool[at].devices);
      EXPECT_GT(of_pool[at].busy, 0);
      EXPECT_LE(of_pool[at].busy, 1);
      EXPECT_GT(of_pool[at].bytes, 0);
      if (at > 0) {
        EXPECT_GT(of_pool[at].devices, of_pool[at - 1].devices);
      }
    }
  }
  EXPECT_LT(by_pool[0].front().step_ms, by_pool[1].front().step_ms);
}

TEST_F(ClusterPlannerTest, a_cell_has_the_keys_of_the_run_with_which_it_was_rehearsed) {
  pool().network = {4e6, 0.02};  // slow transfers, so that more slots and true speeds gain
  ClusterPlanner of_job = planner(distillation_job);
  const std::vector<ClusterCell> cells = of_job.cells();
  const auto of_run = [](const std::string& setting) {
    return setting.starts_with("transport.slots=") || setting.find(".speed=") != std::string::npos;
  };
  EXPECT_TRUE(
      std::ranges::any_of(cells, [&](const ClusterCell& cell) { return std::ranges::any_of(cell.settings, of_run); }));
}

TEST_F(ClusterPlannerTest, more_micro_batches_are_in_flight_where_a_plan_gains_and_memory_suffices) {  // CY-1
  pool().network = {4e6, 0.02};
  pool().inside = {4e6, 0.02};  // slow transfers between stages
  std::string job = distillation_job;
  job.replace(job.find("global_batch = 8"), 16, "global_batch = 64");
  job.insert(job.find("[plain]\n") + 8, "replicas = 1\ntensor = 1\ncontext = 1\npipeline = 2\n");
  const ClusterChoice free = planner(job).choose();
  const ClusterLayout& on = free.sections.at("plain");
  ASSERT_GT(on.in_flight, 2);
  EXPECT_EQ(on.bytes, on.resting_bytes + on.pass_bytes * static_cast<double>(on.in_flight));
  EXPECT_THAT(free.settings, Contains("plain.max_in_flight=" + std::to_string(on.in_flight)));
  expect_places(free);

  std::string given = job;
  given.insert(given.find("[plain]\n") + 8, "max_in_flight = 2\n");
  const ClusterChoice few = planner(given).choose();
  EXPECT_EQ(few.sections.at("plain").in_flight, 0);
  EXPECT_GT(few.played.step_ms, free.played.step_ms);

  pool().memory_bytes = (on.bytes - 1) / options_.headroom;
  EXPECT_LE(planner(job).choose().sections.at("plain").bytes, options_.headroom * pool().memory_bytes);
}

TEST_F(ClusterPlannerTest, a_pipeline_gets_chunks_if_these_shorten_its_bubble) {
  std::string job = distillation_job;
  job.replace(job.find("layers = 2", job.find("[plain]")), 10, "layers = 8\npipeline = 4\nreplicas = 1");
  const auto with_chunks = [&](const std::string& chunks) {
    std::string given = job;
    given.insert(given.find("[plain]\n") + 8, "chunks = " + chunks + "\n");
    return planner(given).choose();
  };
  const ClusterChoice free = planner(job).choose();
  const ClusterLayout& on = free.sections.at("plain");
  EXPECT_EQ(on.layout.chunks, 2) << "8 layers on 4 devices";
  EXPECT_EQ(on.layout.devices() % 4, 0);
  EXPECT_THAT(free.settings, Contains("plain.chunks=2"));
  expect_places(free);
  EXPECT_GT(with_chunks("1").played.step_ms, free.played.step_ms);
  const ClusterChoice two = with_chunks("2");  // all layouts have them
  EXPECT_EQ(two.sections.at("plain").layout.chunks, 2);
  EXPECT_LE(two.played.step_ms, free.played.step_ms * 1.05);
}

TEST_F(ClusterPlannerTest, micro_batches_larger_than_those_that_memory_is_too_small_for_are_not_priced) {
  std::string job = distillation_job;
  job.replace(job.find("global_batch = 8"), 16, "global_batch = 64");
  const ClusterChoice large = planner(job, "", {"micro_batch"}).choose();
  double least = large.sections.at("student").bytes;
  for (const auto& [section, on] : large.sections) least = std::min(least, on.bytes);
  pool().memory_bytes = 4 * least / options_.headroom;
  const ClusterChoice small = planner(job, "", {"micro_batch"}).choose();
  EXPECT_LT(small.priced, large.priced);
  EXPECT_GT(small.priced, 0U);
  EXPECT_GE(small.least_bound_ms, large.least_bound_ms * 0.999);
}

TEST_F(ClusterPlannerTest, a_choice_on_many_devices_is_rehearsed_at_full_size) {
  std::string job = distillation_job;
  job.replace(job.find("global_batch = 8"), 16, "global_batch = 512");
  pool().hosts = 32;
  const ClusterChoice choice = planner(job, "", {"micro_batch"}).choose();
  std::map<SectionId, std::int64_t> lanes;
  for (const auto& [lane, intervals] : choice.played.lanes.lanes) ++lanes[lane.section];
  for (const auto& [section, on] : choice.sections) {
    EXPECT_EQ(lanes[choice.played.graph.stages_of(section).front()], on.layout.replicas) << section;
  }
  EXPECT_GE(choice.played.step_ms, choice.least_bound_ms * 0.999);
  EXPECT_EQ(planner(job, "", {"micro_batch"}).choose().settings, choice.settings);  // CY-2
}

TEST_F(ClusterPlannerTest, errors_name_the_section_and_the_reason) {
  const auto error_of = [](const std::function<void()>& call) -> std::string {
    try {
      call();
      return {};
    } catch (const JobError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job, "studnt"); }), HasSubstr("did you mean student?"));
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job, "student"); }), HasSubstr("gives no student.replicas"));
  options_.cheapest = true;
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job); }), HasSubstr("needs price_per_hour of all hosts"));
  options_.cheapest = false;
  pool().devices_of_host = 4;
  pool().memory_bytes = 1e4;
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job).choose(); }),
              ::testing::ContainsRegex(
                  "are too few, or their memory of 0.1 GiB, of which plans take 92%, is too small; the smallest "
                  "needs: teacher 0.1 GiB on each of [0-9]+ devices, student"));
}

}  // namespace
}  // namespace maestro::testing
