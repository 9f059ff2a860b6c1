// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/cluster_planner.hpp"

#include <gmock/gmock.h>

#include "tests/actors/layouts/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;

class ClusterPlannerTest : public ::testing::Test {
 protected:
  ClusterPlannerTest() {
    cluster_.name = "a cluster";
    cluster_.memory_bytes = 1e9;
    cluster_.bf16_flops_per_ms = 1e8;
    cluster_.fp32_flops_per_ms = 1e8;
    cluster_.memory_bytes_per_ms = 1e9;
    cluster_.hosts = 4;
    cluster_.devices_of_host = 4;
    cluster_.inside = {1e9, 0.0001};
    cluster_.network = {4e9, 0.0001};
  }
  ClusterPlanner planner(const std::string& job, const std::string& kept = {}, std::set<std::string> varied = {}) {
    ClusterPlannerOptions options;
    options.kept = kept;
    options.hop_ms = 0;
    options.varied = std::move(varied);
    options.varied.insert("devices");
    return ClusterPlanner(
        [job](std::vector<std::string> settings) {
          for (const char* const section : {"teacher", "student", "plain"}) {
            const std::string key = std::string(section) + ".devices=";
            const bool set = std::ranges::any_of(settings, [&](const auto& each) { return each.starts_with(key); });
            if (!set) settings.push_back(key + "[\"emulated\"]");
          }
          return plan_of(job, settings);
        },
        cluster_, options);
  }
  /// The numbers in the list of a setting: "teacher.processes=[0, 1]".
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
  DescribedCluster cluster_;
};

TEST_F(ClusterPlannerTest, sections_have_places_of_their_own_in_the_hosts) {  // CY-1
  const ClusterChoice choice = planner(distillation_job, "", {"micro_batch"}).choose();
  EXPECT_LE(choice.devices, 16);
  EXPECT_GE(choice.step_ms, choice.least_bound_ms * 0.999);
  std::set<std::pair<int, int>> used;
  for (const auto& [section, on] : choice.sections) {
    const SectionLayout& layout = on.layout;
    EXPECT_LE(on.bytes, 0.92e9);
    const std::vector<int> devices = numbers(choice, section + ".devices");
    const std::vector<int> processes = numbers(choice, section + ".processes");
    const auto ranks = static_cast<std::size_t>(layout.tensor * layout.context);
    ASSERT_EQ(devices.size(), static_cast<std::size_t>(layout.devices())) << section;
    ASSERT_EQ(processes.size() * ranks, devices.size()) << section;
    for (std::size_t at = 0; at < devices.size(); ++at) {
      EXPECT_LT(processes[at / ranks], 4);
      EXPECT_LT(devices[at], 4);
      EXPECT_TRUE(used.emplace(processes[at / ranks], devices[at]).second) << section << " " << at;
    }
  }
}

TEST_F(ClusterPlannerTest, a_choice_resolves_with_a_process_on_each_host) {
  for (const char* const stages : {"plain.pipeline=2", "plain.pipeline=1"}) {
    const std::string degree(stages);
    std::string job = distillation_job;
    job.insert(job.find("[plain]\n") + 8, degree.substr(6, 8) + " = " + degree.back() + "\n");
    const ClusterChoice choice = planner(job, "", {"micro_batch"}).choose();
    std::vector<std::string> settings;
    for (std::string setting : choice.settings) {  // cores in the place of GPUs
      for (auto at = setting.find("cuda:"); at != std::string::npos; at = setting.find("cuda:")) {
        setting.replace(at, 4, "cpu");
      }
      settings.push_back(std::move(setting));
    }
    const JobPlan plan = plan_of(job, settings, "a,b,c,d");
    std::set<ProcessId> processes;
    for (const ReplicaPlacement& place : plan.places) processes.insert(place.process);
    EXPECT_GT(processes.size(), 1U) << degree;
  }
}

TEST_F(ClusterPlannerTest, the_same_cluster_gives_the_same_choice) {  // CY-2
  const ClusterChoice first = planner(distillation_job).choose();
  const ClusterChoice second = planner(distillation_job).choose();
  EXPECT_EQ(first.settings, second.settings);
  EXPECT_EQ(first.step_ms, second.step_ms);
}

TEST_F(ClusterPlannerTest, a_larger_cluster_is_never_slower_by_its_bound) {
  double before = std::numeric_limits<double>::infinity();
  for (const std::int64_t hosts : {1, 2, 4, 16, 250}) {
    cluster_.hosts = hosts;
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
  cluster_.hosts = 1;
  cluster_.devices_of_host = 2;
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job).choose(); }), HasSubstr("the 2 devices of a cluster"));
  cluster_.devices_of_host = 4;
  cluster_.memory_bytes = 1e4;
  EXPECT_THAT(error_of([&] { (void)planner(distillation_job).choose(); }), HasSubstr("too small"));
}

}  // namespace
}  // namespace maestro::testing
