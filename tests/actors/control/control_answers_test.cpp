// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "actors/control/control_text.hpp"
#include "actors/control/control_types.h"
#include "actors/control/run_answers.hpp"
#include "actors/messages/wait_text.hpp"
#include "runtime/data/synthetic/synthetic_corpus.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Graph: first -> second; section second has two replicas in process 1.
class ControlAnswersTest : public ::testing::Test {
 protected:
  ControlAnswersTest() {
    job_.name = "small";
    job_.train.steps = 10;
    job_.train.global_batch = 4;
    job_.corpus = std::make_shared<SyntheticCorpus>(SyntheticOptions{});
    for (const char* name : {"first", "second"}) {
      GraphNode node;
      node.name = name;
      node.replicas = job_.graph.nodes().empty() ? 1 : 2;
      job_.graph.add(node);
      job_.sections.emplace_back();
    }
    job_.places = {{SectionId(0), ReplicaIndex(0), ProcessId(0), {{DeviceId::Kind::cpu, 0}}, 0},
                   {SectionId(1), ReplicaIndex(0), ProcessId(1), {{DeviceId::Kind::cpu, 1}}, 0},
                   {SectionId(1), ReplicaIndex(1), ProcessId(1), {{DeviceId::Kind::cpu, 2}}, 0}};
    auto directory = std::make_shared<Directory>();
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ProcessInfo& info = directory->processes.emplace_back();
      info.process = ProcessId(rank);
      info.identity.pid = 100 + rank;
      info.host = "host" + std::to_string(rank);
    }
    run_.state = RunState::running;
    run_.last_step = 3;
    run_.directory = directory;
    run_.units = {{RunUnit::Kind::train, StepId(4)}, {RunUnit::Kind::checkpoint, StepId(4)}};
    run_.latest["second"] = StepRow{"second", StepId(3), {{"loss", 1.5}}};
    run_.loss = 1.5;
    run_.figures.recent_use[{SectionId(1), ReplicaIndex(0)}] = {400, 100, 1000};
    run_.figures.recent_use[{SectionId(1), ReplicaIndex(1)}] = {600, 100, 1000};
    run_.steady_step = SteadyStep{150, 120, 20};
  }
  static WaitingFor busy() {
    WaitingFor answer;
    answer.section = SectionId(0);
    answer.doing = "forward";
    answer.step = StepId(4);
    answer.micro_batch = 2;
    return answer;
  }
  static WaitingFor waits(WaitKind kind) {
    WaitingFor answer;
    answer.section = SectionId(0);
    answer.kind = kind;
    answer.step = StepId(4);
    answer.sample = 77;
    answer.port = "hidden";
    answer.peer = SectionId(1);
    answer.peers = {ReplicaIndex(0), ReplicaIndex(1)};
    return answer;
  }

  ResolvedJob job_;
  RunStatus run_;
};

TEST(ControlText, rows_are_lines_of_text_and_of_json) {
  const MetricsRow row{true, "student", 12, {{"loss", 0.5}, {"ce", std::nan("")}}};
  EXPECT_EQ(plain_text(row), "validation after step 12, student: ce nan, loss 0.5");
  EXPECT_EQ(json_text(row), R"({"section":"student","step":12,"kind":"validation","metrics":{"ce":null,"loss":0.5}})");
}

TEST(ControlText, a_sparkline_has_the_means_of_its_values) {
  EXPECT_EQ(sparkline({}, 10), "");
  EXPECT_EQ(sparkline({3}, 10), "\u2581");
  EXPECT_EQ(sparkline({0, 7, std::nan(""), 3.5}, 10), "\u2581\u2588\u2585");
  EXPECT_EQ(sparkline({0, 0, 8, 8, 4, 4}, 3), "\u2581\u2588\u2585");
  EXPECT_EQ(sparkline({1, 2, 3}, 0), "");
}

TEST_F(ControlAnswersTest, a_replica_whose_placement_has_moved_is_where_it_is_now) {
  Directory moved = *run_.directory;
  moved.processes[0].replicas.push_back({SectionId(1), ReplicaIndex(1), ProcessId(0), nullptr, {}, {}});
  run_.directory = std::make_shared<const Directory>(moved);
  job_.places.push_back({SectionId(1), ReplicaIndex(2), ProcessId(0), {{DeviceId::Kind::cpu, 5}}, 0});
  run_.recoveries = {"lost process 1; went on"};
  const control::Status status = status_answer(job_, run_, {});
  ASSERT_EQ(status.replicas.size(), 4u);
  EXPECT_EQ(status.replicas[2].process, 0);
  EXPECT_EQ(status.replicas[2].pid, 100);
  EXPECT_THAT(status.replicas[2].devices, ElementsAre("cpu:5"));
  EXPECT_THAT(plain_text(status), HasSubstr("recovered: lost process 1; went on"));
}

TEST_F(ControlAnswersTest, status_has_every_section_and_replica_and_says_who_has_not_answered) {
  const control::Status status = status_answer(job_, run_, {busy()});
  EXPECT_EQ(status.state, control::State::RUNNING);
  EXPECT_EQ(status.step, 3);
  EXPECT_EQ(status.units.size(), 2u);
  ASSERT_EQ(status.sections.size(), 2u);
  EXPECT_EQ(status.sections[1].metrics.at("loss"), 1.5);
  EXPECT_EQ(status.sections[1].busy, 0.5);
  EXPECT_FALSE(status.sections[0].__isset.busy);
  EXPECT_EQ(status.step_ms, 150);
  EXPECT_EQ(status.step_time_over_bound, 1.25);
  ASSERT_EQ(status.replicas.size(), 3u);
  EXPECT_EQ(status.replicas[0].state, control::ReplicaState::BUSY);
  EXPECT_EQ(status.replicas[0].doing, "forward");
  EXPECT_EQ(status.replicas[0].micro_batch, 2);
  EXPECT_EQ(status.replicas[1].state, control::ReplicaState::NO_ANSWER);
  EXPECT_EQ(status.replicas[2].pid, 101);
  EXPECT_EQ(status.replicas[2].host, "host1");
}

TEST_F(ControlAnswersTest, the_stages_of_a_section_are_a_row_of_status_with_their_mean_share_of_time) {
  ResolvedJob staged;
  staged.corpus = job_.corpus;
  RunStatus run;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    GraphNode node;
    node.name = "model.stage" + std::to_string(stage);
    node.section = "model";
    node.stage = stage;
    node.stages = 2;
    run.figures.recent_use[{SectionId(static_cast<std::uint32_t>(stage)), ReplicaIndex(0)}] = {
        500 + 250 * static_cast<double>(stage), 0, 1000};
    staged.graph.add(node);
    staged.sections.emplace_back();
  }
  run.last_step = 8;
  run.position = 2 * staged.corpus->samples(Split::train);
  const control::Status status = status_answer(staged, run, {});
  ASSERT_EQ(status.sections.size(), 1u);
  EXPECT_EQ(status.sections[0].name, "model");
  EXPECT_DOUBLE_EQ(status.sections[0].busy, 0.625);
  EXPECT_EQ(status.epoch, 2);
}

TEST_F(ControlAnswersTest, lanes_that_share_a_device_add_up_to_its_share_of_time) {
  const DeviceId shared{DeviceId::Kind::cpu, 3};
  for (ReplicaPlacement& place : job_.places) {
    place.process = ProcessId(1);
    place.devices = {shared};
  }
  run_.figures.recent_use = {{{SectionId(0), ReplicaIndex(0)}, {300, 10, 1000}},
                             {{SectionId(1), ReplicaIndex(0)}, {250, 20, 1000}},
                             {{SectionId(1), ReplicaIndex(1)}, {400, 10, 1000}}};
  const control::Status status = status_answer(job_, run_, {});
  ASSERT_EQ(status.devices.size(), 1u);
  EXPECT_EQ(status.devices[0].device, "cpu:3");
  EXPECT_EQ(status.devices[0].process, 1);
  EXPECT_EQ(status.devices[0].host, "host1");
  EXPECT_DOUBLE_EQ(status.devices[0].busy, 0.99);
  EXPECT_EQ(status.replicas[2].busy, 0.4);
  EXPECT_THAT(plain_text(status), HasSubstr("cpu:3   process 1 at host1  99%"));
  run_.figures.recent_use[{SectionId(0), ReplicaIndex(0)}] = {600, 0, 1000};  // it has ended its step later
  EXPECT_EQ(status_answer(job_, run_, {}).devices[0].busy, 1);
}

TEST_F(ControlAnswersTest, a_wait_names_section_replicas_processes_sample_and_step) {
  const control::Wait wait = status_answer(job_, run_, {waits(WaitKind::gradient)}).replicas[0].wait;
  EXPECT_EQ(wait.kind, control::WaitKind::GRADIENT);
  EXPECT_EQ(wait.section, "second");
  EXPECT_THAT(wait.replicas, ElementsAre(0, 1));
  EXPECT_THAT(wait.processes, ElementsAre(1));
  EXPECT_EQ(wait.sample, 77);
  EXPECT_EQ(wait.step, 4);
  EXPECT_EQ(wait.text, "the gradient of hidden from section 'second' replica 0, 1, sample 77, step 4");
}

TEST_F(ControlAnswersTest, every_kind_of_wait_has_the_number_that_the_protocol_gives_it_and_words) {
  EXPECT_EQ(control::_WaitKind_VALUES_TO_NAMES.rbegin()->first, static_cast<int>(WaitKind::turn)) << "the last kind";
  for (const auto& [number, name] : control::_WaitKind_VALUES_TO_NAMES) {
    const WaitingFor waiting = waits(static_cast<WaitKind>(number));
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char letter) { return std::tolower(letter); });
    EXPECT_EQ(name_of(waiting.kind), lower);
    EXPECT_FALSE(status_answer(job_, run_, {waiting}).replicas[0].wait.text.empty()) << name;
  }
}

TEST_F(ControlAnswersTest, people_read_a_table_and_programs_json_of_the_same) {
  const control::Status status = status_answer(job_, run_, {busy()});
  const std::string text = plain_text(status);
  for (const char* wanted : {"job small: running, step 3 of 10", "loss 1.5000",
                             "announced: step 4, checkpoint of step 4", "second 1  process 1 at host1 (pid 101)",
                             "no answer", "step time: 150.0 ms, 1.250 times the lower bound of a step by itself",
                             "busy: share of the last steps' time", "forward, step 4, micro-batch 2"}) {
    EXPECT_THAT(text, HasSubstr(wanted));
  }
  const auto json = nlohmann::json::parse(json_text(status));
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["units"][1]["kind"], "checkpoint");
  EXPECT_EQ(json["replicas"][1]["state"], "no_answer");
  EXPECT_EQ(json["sections"][1]["metrics"]["loss"], 1.5);
}

TEST_F(ControlAnswersTest, a_plan_has_layouts_and_places) {
  job_.effective_job = "name = \"small\"\n";
  const control::Plan plan = plan_answer(job_, run_);
  ASSERT_EQ(plan.sections.size(), 2u);
  EXPECT_EQ(plan.sections[1].replicas.size(), 2u);
  EXPECT_EQ(plan.sections[1].replicas[1].host, "host1");
  EXPECT_FALSE(plan.__isset.planned_ms) << "nothing has been planned yet";
  EXPECT_EQ(nlohmann::json::parse(json_text(plan))["effective_job"], job_.effective_job);
  EXPECT_THAT(plain_text(plan), HasSubstr("2 x 1 x 1"));
}

}  // namespace
}  // namespace maestro
