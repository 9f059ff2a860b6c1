// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_jobs.hpp"

#include <gmock/gmock.h>

#include "apps/fleet/fleet_curves.hpp"
#include "runtime/core/result.hpp"
#include "tests/fleet/fleets.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

const std::string head = "jobs = 3\nmean_between_s = 10\nmove_s = 5\n";
const std::string small_job = R"([[job]]
name = "small"
cells = "small.json"
share = 2
steps = [10, 20]
kind = "h100"
devices = 8
)";

FleetJobs read(const std::string& text) {
  return parse_fleet_jobs(text, "jobs.toml", [](const std::string& file) {
    if (file != "small.json") throw JobError(file + ": not found");
    return job_of("small", {{4, 20}, {8, 10}}, 8).cells;
  });
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
    return "(no error)";
  } catch (const JobError& error) {
    return error.what();
  }
}

std::string error_in(const std::string& text) {
  return error_of([&] { (void)read(text); });
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(FleetJobs, are_read_with_their_cells) {
  const FleetJobs jobs = read("seed = 4\n" + head + small_job + with(small_job, "\"small\"", "\"other\""));
  EXPECT_EQ(jobs.seed, 4U);
  EXPECT_EQ(jobs.jobs, 3);
  EXPECT_EQ(jobs.mean_between_s, 10);
  EXPECT_EQ(jobs.move_s, 5);
  ASSERT_EQ(jobs.kinds.size(), 2U);
  EXPECT_EQ(jobs.kinds[1].name, "other");
  EXPECT_EQ(jobs.kinds[0].share, 2);
  EXPECT_EQ(jobs.kinds[0].most_steps, 20);
  EXPECT_EQ(jobs.kinds[0].cells.cells.size(), 2U);
}

TEST(FleetJobs, errors_have_the_line_and_the_key) {  // FJ-1
  EXPECT_EQ(error_in(head + with(small_job, "devices = 8", "devices = 7")),
            "jobs.toml:10: job[0].devices: small.json lacks a cell of 7 devices of h100; the nearest has 8");
  EXPECT_THAT(error_in(head + with(small_job, "\"h100\"", "\"h10\"")),
              HasSubstr("jobs.toml:9: job[0].kind: small.json lacks a cell of kind h10; did you mean 'h100'?"));
  EXPECT_THAT(error_in(head + with(small_job, "share", "shares")),
              HasSubstr("shares: unknown key; did you mean 'share'?"));
  EXPECT_THAT(error_in(head + with(small_job, "[10, 20]", "[20, 10]")), HasSubstr("steps: expected [least, most]"));
  EXPECT_THAT(error_in(head + with(small_job, "name = \"small\"\n", "")), HasSubstr("job[0].name: missing"));
  EXPECT_THAT(error_in(head + small_job + small_job), HasSubstr("job[1].name: an earlier job is also called small"));
  EXPECT_THAT(error_in(head), HasSubstr("job: missing"));
  EXPECT_THAT(error_in("jobs = 0\n" + small_job), HasSubstr("mean_between_s: missing"));
  EXPECT_THAT(error_in(with(head, "3", "0") + small_job), HasSubstr("jobs.toml:1: jobs: must be from 1"));
}

TEST(FleetJobs, are_drawn_by_their_shares_and_the_seed) {  // FJ-2
  FleetJobs from = read(head + small_job + with(small_job, "\"small\"", "\"other\""));
  from.jobs = 4000;
  from.kinds[1].share = 6;
  const std::vector<FleetJob> jobs = drawn_jobs(from, 1);
  const std::vector<FleetJob> again = drawn_jobs(from, 1);
  double last_s = 0;
  int others = 0;
  for (std::size_t at = 0; at < jobs.size(); ++at) {
    EXPECT_EQ(jobs[at].arrival_s, again[at].arrival_s);
    EXPECT_GE(jobs[at].arrival_s, last_s);
    EXPECT_GE(jobs[at].steps, 10);
    EXPECT_LE(jobs[at].steps, 20);
    last_s = jobs[at].arrival_s;
    others += jobs[at].kind == 1 ? 1 : 0;
  }
  EXPECT_NEAR(others, 3000, 150);
  EXPECT_NEAR(last_s, 40000, 2000);
  EXPECT_NE(drawn_jobs(from, 2)[0].arrival_s, jobs[0].arrival_s);
}

TEST(FleetCurves, leave_out_devices_that_make_nothing_faster) {  // FK-1
  const FleetJobs jobs = jobs_of({job_of("a", {{4, 20}, {8, 20}, {16, 10}, {64, 1}}, 8)});
  const FleetCurve curve = curves_of(jobs, one_pool(4, 8))[0];
  ASSERT_EQ(curve.options.size(), 2U);
  EXPECT_EQ(curve.options[1].devices, 16);
  EXPECT_EQ(curve.fixed.devices, 8);
  EXPECT_DOUBLE_EQ(curve.rate(curve.options[1]), 2);
}

TEST(FleetCurves, refuse_layouts_that_the_cluster_has_no_room_for) {
  const auto error = [](const FleetJobKind& job, const FleetCluster& cluster) {
    return error_of([&] { (void)curves_of(jobs_of({job}), cluster); });
  };
  EXPECT_EQ(error(job_of("a", {{16, 10}}, 16), one_pool(1, 8)), "job a: 16 devices of h100, but one pool has 8");
  FleetJobKind other = job_of("b", {{8, 10}}, 8);
  other.kind = other.cells.cells[0].kind = "h10";
  EXPECT_EQ(error(other, one_pool(1, 8)),
            "job b: 8 devices of h10, but one pool lacks such devices; did you mean 'h100'?");
}

}  // namespace
}  // namespace maestro
