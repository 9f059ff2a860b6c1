// SPDX-License-Identifier: Apache-2.0
// Limits that are checked on a complete plan, at equality and just beyond.
#include "actors/job/plan_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "actors/job/emulated_step_end.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PlanChecks : public ::testing::Test {
 protected:
  /// Adds a section that reads its predecessor.
  void add(const std::string& name, std::int64_t micro_batch, std::int64_t replicas = 1, bool trained = true) {
    GraphNode node;
    node.name = name;
    node.role = trained ? Role::trained : Role::passing;
    node.micro_batch = micro_batch;
    node.replicas = replicas;
    if (!plan_.graph.nodes().empty()) node.ports.inputs = {{"in", DType::f32, 1, true, false}};
    node.ports.outputs = {{"out", DType::f32, 1, true, false}};
    plan_.graph.add(node);
    PlannedSection section;
    section.config.name = name;
    section.config.replicas = replicas;
    plan_.sections.push_back(std::move(section));
    if (!last_.empty()) plan_.graph.connect(last_, "out", name, "in");
    last_ = name;
  }
  static std::string refusal_of(const std::function<void()>& check) {
    try {
      check();
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  }

  ResolvedJob plan_;
  std::string last_;
};

TEST_F(PlanChecks, every_replica_of_a_trained_section_has_a_micro_batch_in_a_step) {
  add("student", 4, 3);
  plan_.train.global_batch = 9;  // micro-batches with 4, 4 and 1 samples
  EXPECT_EQ(refusal_of([&] { check_batches(plan_); }), "accepted");
  plan_.train.global_batch = 8;
  EXPECT_THAT(refusal_of([&] { check_batches(plan_); }),
              HasSubstr("makes 2 micro-batches of 4, too few for 3 replicas; use student.micro_batch = 2"));
}

TEST_F(PlanChecks, advice_about_a_small_batch_is_accepted_when_it_is_followed) {
  for (const std::int64_t samples : {1, 2, 3, 5, 8, 17}) {
    for (const std::int64_t micro_batch : {1, 2, 3, 8}) {
      for (const std::int64_t replicas : {2, 3, 4, 16}) {
        plan_ = {};
        last_.clear();
        add("student", micro_batch, replicas);
        plan_.train.global_batch = samples;
        const std::string told = refusal_of([&] { check_batches(plan_); });
        if (told == "accepted") continue;
        const auto number_after = [&](const std::string& key) {
          const std::size_t at = told.find(key, told.find("use "));
          return at == std::string::npos ? 0 : std::stoll(told.substr(at + key.size()));
        };
        for (const char* key : {"student.micro_batch = ", "student.replicas = ", "train.global_batch = "}) {
          const std::int64_t value = number_after(key);
          if (value == 0) continue;
          const bool batch = key[0] == 't', size = key[8] == 'm';
          plan_.train.global_batch = batch ? value : samples;
          plan_.graph.set_batches(SectionId(0), size ? value : micro_batch, batch || size ? replicas : value);
          EXPECT_EQ(refusal_of([&] { check_batches(plan_); }), "accepted") << told;
        }
      }
    }
  }
}

TEST_F(PlanChecks, defaults_that_contradict_a_small_batch_are_lowered_and_given_values_never) {
  struct Case {
    const char* table;
    std::int64_t samples, micro_batch, replicas;  // samples per step; resulting micro_batch and replicas
    std::vector<std::string> notes;
  };
  const std::vector<Case> cases{
      {"", 1, 1, 1, {"student: micro_batch = 1, replicas = 1 by default, as train.global_batch = 1 allows no more"}},
      {"", 3, 1, 2, {"student: micro_batch = 1 by default, as train.global_batch = 3 allows no more"}},
      {"", 8, 4, 2, {"student: micro_batch = 4 by default, as train.global_batch = 8 allows no more"}},
      {"", 9, 8, 2, {}},
      {"micro_batch = 8", 8, 8, 1, {"student: replicas = 1 by default, as train.global_batch = 8 allows no more"}},
      {"replicas = 2", 2, 1, 2, {"student: micro_batch = 1 by default, as train.global_batch = 2 allows no more"}},
      {"replicas = 2\nmicro_batch = 8", 8, 8, 2, {}},
      {"micro_batch = 8\ndevices = [\"cpu:0\", \"cpu:1\"]", 8, 8, 2, {}},
  };
  for (const Case& one : cases) {
    plan_ = {};
    last_.clear();
    add("student", 8, 2);
    plan_.train.global_batch = one.samples;
    fit_defaults(plan_, JobDocument::parse("[student]\n" + std::string(one.table), "job.toml").root());
    const GraphNode& node = plan_.graph.node(SectionId(0));
    EXPECT_EQ(node.micro_batch, one.micro_batch) << one.table << one.samples;
    EXPECT_EQ(node.replicas, one.replicas) << one.table << one.samples;
    EXPECT_EQ(plan_.sections[0].config.replicas, one.replicas);
    EXPECT_EQ(plan_.notes, one.notes);
  }
}

/// Sources of a mixture with samples and weights.
class Sources : public Corpus {
 public:
  explicit Sources(std::vector<SampleSource> sources) : sources_(std::move(sources)) {}
  [[nodiscard]] std::vector<SampleSource> sources() const override { return sources_; }
  [[nodiscard]] std::vector<SourceTeachers> teachers() const override { return {{"a", {}}, {"b", {}}}; }
  [[nodiscard]] std::uint64_t samples(Split) const override { return 0; }
  [[nodiscard]] std::int64_t length(Split, SampleId) const override { return 1; }
  [[nodiscard]] std::int64_t vocabulary() const override { return 2; }
  [[nodiscard]] std::int64_t targets(Split, SampleId) const override { return 1; }
  [[nodiscard]] std::string describe() const override { return {}; }

 private:
  void read_exact(Split, SampleId, std::span<std::int32_t>, std::span<std::int32_t>) const override {}
  std::vector<SampleSource> sources_;
};

TEST_F(PlanChecks, a_source_without_samples_or_places_is_refused_by_name_and_key) {
  const JobDocument job = JobDocument::parse("[data.mix.a]\nweight = 0.0001\n[data.mix.b]\npath = \"x\"", "job.toml");
  const JobTable mix = job.root().table("data").table("mix");
  const auto refusal = [&](std::vector<SampleSource> sources) {
    return refusal_of([&] { check_sources(Sources(std::move(sources)), mix); });
  };
  EXPECT_EQ(refusal({{9, 0.0001}, {9, 2}}),
            "job.toml:2: data.mix.a.weight: 1e-04 gives this source none of 1,024 samples with the other weights; use "
            "at least 0.0022");
  EXPECT_EQ(refusal({{9, 0.0022}, {9, 2}}), "accepted");
  EXPECT_EQ(refusal({{9, 1}, {0, 2}}), "job.toml:4: data.mix.b.path: this source contains no training samples");
}

TEST_F(PlanChecks, predictions_name_sections_of_the_job) {
  add("student", 4);
  const JobDocument job = JobDocument::parse("[plan]\nkeep = [\"studnet\"]\n", "job.toml");
  EXPECT_EQ(refusal_of([&] { check_predictions(plan_, job.root()); }), "accepted");
  plan_.planned.keep = {"studnet"};
  EXPECT_THAT(refusal_of([&] { check_predictions(plan_, job.root()); }),
              HasSubstr("job.toml:2: plan.keep: there is no section 'studnet'; did you mean 'student'?"));
  plan_.planned.keep = {};
  plan_.planned.predicted_passes_ms = {{"teacher", 3}};
  EXPECT_THAT(refusal_of([&] { check_predictions(plan_, job.root()); }), HasSubstr("there is no section 'teacher'"));
}

TEST_F(PlanChecks, as_many_micro_batches_may_be_in_flight_as_a_section_behind_takes_at_once) {
  add("encoder", 2);
  add("decoder", 8);
  plan_.train.global_batch = 16;
  plan_.graph.set_max_in_flight(SectionId(0), 4);
  EXPECT_EQ(refusal_of([&] { check_in_flight(plan_); }), "accepted");
  plan_.graph.set_max_in_flight(SectionId(0), 3);
  EXPECT_THAT(refusal_of([&] { check_in_flight(plan_); }),
              HasSubstr("encoder.max_in_flight = 3: a downstream section uses samples from 4 micro-batches"));
}

TEST_F(PlanChecks, the_shares_of_a_device_add_up_to_one_and_sections_without_a_share_do_not_count) {
  for (const char* name : {"teacher", "student", "probe", "idle"}) {
    add(name, 1);
    plan_.sections.back().config.devices = {{DeviceId::Kind::cuda, 0}};
  }
  for (int section = 0; section < 2; ++section) plan_.sections[section].config.share = 0.5;
  EXPECT_EQ(refusal_of([&] { check_cuda(plan_); }), "accepted");
  plan_.sections[2].config.share = 0.1;
  EXPECT_THAT(refusal_of([&] { check_cuda(plan_); }),
              HasSubstr("teacher.share + student.share + probe.share = 1.1 of cuda:0"));
  plan_.sections[2].config.devices = {{DeviceId::Kind::cuda, 1}};
  EXPECT_EQ(refusal_of([&] { check_cuda(plan_); }), "accepted");
  plan_.sections[2].config.devices = {{DeviceId::Kind::cpu, 1}};
  EXPECT_THAT(refusal_of([&] { check_cuda(plan_); }), HasSubstr("probe.share divides a CUDA device"));
}

TEST_F(PlanChecks, the_ranks_of_a_replica_are_on_devices_of_one_kind) {
  add("student", 1);
  plan_.places = {
      {SectionId(0), ReplicaIndex(1), ProcessId(0), {{DeviceId::Kind::cuda, 0}, {DeviceId::Kind::cuda, 1}}}};
  EXPECT_EQ(refusal_of([&] { check_cuda(plan_); }), "accepted");
  plan_.places[0].devices[1] = {DeviceId::Kind::cpu, 0};
  EXPECT_THAT(refusal_of([&] { check_cuda(plan_); }), HasSubstr("replica 1 are on cuda:0 and cpu:0"));
}

TEST_F(PlanChecks, the_stages_of_all_replicas_have_devices) {
  add("student", 1, 2);
  plan_.sections[0].config.pipeline = 3;
  EXPECT_EQ(refusal_of([&] { check_devices(plan_, 6); }), "accepted");
  EXPECT_THAT(refusal_of([&] { check_devices(plan_, 5); }), HasSubstr("needs 6 devices, and there are 5"));
}

TEST_F(PlanChecks, emulated_stages_need_no_devices_of_the_machine_and_are_noted_once) {
  for (const std::int64_t stage : {0, 1}) {
    add("student.stage" + std::to_string(stage), 1);
    plan_.sections.back().config.name = "student";
    plan_.sections.back().stage.index = stage;
    plan_.sections.back().config.pipeline = 2;
    plan_.sections.back().config.devices = {*parse_device("emulated:" + std::to_string(stage))};
    last_.clear();
  }
  EXPECT_EQ(refusal_of([&] { check_devices(plan_, 1); }), "accepted");
  EXPECT_EQ(refusal_of([&] { check_emulated(plan_); }), "accepted");
  EXPECT_THAT(plan_.notes, ElementsAre("student: emulated, its passes are timed waits"));
}

TEST_F(PlanChecks, the_end_of_a_step_on_emulated_devices_is_a_ring_over_the_replicas_and_the_step_itself) {
  add("student", 1, 4);
  plan_.held = {{.all = 25'000'000}};  // 100 MB for gradients
  EXPECT_EQ(emulated_step_end(plan_, SectionId(0)).sum_ms, 0);
  EXPECT_EQ(emulated_step_end(plan_, SectionId(0)).step_ms, 0);
  plan_.emulation.step_ms = 3;
  plan_.emulation.reduce_gb_s = 10;
  EXPECT_DOUBLE_EQ(emulated_step_end(plan_, SectionId(0)).sum_ms, 15);  // 2 x 3/4 x 100 MB at 10 MB/ms
  EXPECT_EQ(emulated_step_end(plan_, SectionId(0)).step_ms, 3);
  add("frozen", 1, 4, false);
  plan_.held.push_back(plan_.held[0]);
  EXPECT_EQ(emulated_step_end(plan_, SectionId(1)).sum_ms, 0);
  EXPECT_EQ(emulated_step_end(plan_, SectionId(1)).step_ms, 0);
  add("alone", 1);
  plan_.held.push_back(plan_.held[0]);
  EXPECT_EQ(emulated_step_end(plan_, SectionId(2)).sum_ms, 0);
}

TEST_F(PlanChecks, an_emulated_section_has_no_state_to_store_or_resume_from) {
  add("student", 1);
  EXPECT_EQ(refusal_of([&] { check_emulated(plan_); }), "accepted");
  EXPECT_TRUE(plan_.train.checkpoint_at_end);
  EXPECT_THAT(plan_.notes, IsEmpty());
  plan_.sections[0].config.devices = {{DeviceId::Kind::emulated}};
  plan_.train.checkpoint_every = 0;
  EXPECT_EQ(refusal_of([&] { check_emulated(plan_); }), "accepted");
  EXPECT_FALSE(plan_.train.checkpoint_at_end);
  EXPECT_THAT(plan_.notes, ElementsAre("student: emulated, its passes are timed waits"));
  plan_.train.checkpoint_every = 1;
  EXPECT_THAT(refusal_of([&] { check_emulated(plan_); }), HasSubstr("train.checkpoint_every = 1"));
  plan_.train.checkpoint_every = 0;
  plan_.train.archive_every = 2;
  EXPECT_THAT(refusal_of([&] { check_emulated(plan_); }), HasSubstr("train.archive_every = 2"));
  plan_.train.archive_every = 0;
  plan_.options.resume = "runs/x";
  EXPECT_THAT(refusal_of([&] { check_emulated(plan_); }), HasSubstr("no state to resume from"));
}

TEST_F(PlanChecks, a_job_trains_a_section) {
  add("teacher", 1, 1, false);
  EXPECT_THAT(refusal_of([&] { check_trained(plan_); }), HasSubstr("trained = true in one of teacher"));
  add("student", 1);
  EXPECT_EQ(refusal_of([&] { check_trained(plan_); }), "accepted");
}

TEST_F(PlanChecks, checkpoints_in_memory_serve_a_run_on_one_host_that_recovers) {
  add("student", 4);
  ProcessEnv& place = plan_.options.launch_info.place;
  const auto check = [this](std::vector<std::uint32_t> hosts) {
    plan_.train.shadow_every = 10;
    plan_.options.launch_info.place.hosts = std::move(hosts);
    return refusal_of([this] { check_shadows(plan_); });
  };
  place.processes = 2;
  EXPECT_EQ(check({0, 0}), "accepted");
  EXPECT_EQ(plan_.train.shadow_every, 10);
  EXPECT_THAT(check({0, 1}), HasSubstr("train.shadow_every = 10: hosts cannot read each other's memory"));
  plan_.train.recover = RecoverChoice::off;
  EXPECT_THAT(check({0, 0}), HasSubstr("only with train.recover = \"restart\"; leave it at 0"));
  plan_.train.recover = RecoverChoice::restart;
  place.launcher = JobLauncher::slurm;
  EXPECT_EQ(check({0, 0}), "accepted");
  EXPECT_EQ(plan_.train.shadow_every, 0);
  EXPECT_THAT(plan_.notes, ElementsAre(HasSubstr("no effect, as rank 0 starts no other processes here")));
}

TEST_F(PlanChecks, a_run_goes_back_where_it_has_checkpoints_and_starts_its_own_processes) {
  add("student", 1);
  ProcessEnv& place = plan_.options.launch_info.place;
  const auto check = [this] { return refusal_of([this] { check_guard(plan_); }); };
  EXPECT_EQ(check(), "accepted") << "a spike is noted";
  plan_.guard.action = GuardAction::rollback;
  EXPECT_THAT(check(), HasSubstr("no checkpoint to go back to; set train.checkpoint_every"));
  plan_.train.archive_every = 10;
  plan_.train.archive = ArchiveChoice::bf16;
  EXPECT_THAT(check(), HasSubstr("or train.archive_every with train.archive = \"full\""));
  plan_.train.archive = ArchiveChoice::full;
  EXPECT_EQ(check(), "accepted");
  plan_.train.recover = RecoverChoice::off;
  EXPECT_EQ(check(), "accepted") << "a single process";
  place.processes = 2;
  EXPECT_THAT(check(), HasSubstr("only with train.recover = \"restart\""));
  plan_.train.recover = RecoverChoice::restart;
  EXPECT_EQ(check(), "accepted");
  place.launcher = JobLauncher::slurm;
  EXPECT_THAT(check(), HasSubstr("rank 0 starts no other processes here"));
  plan_.sections[0].config.devices = {{DeviceId::Kind::emulated}};
  EXPECT_THAT(check(), HasSubstr("emulated sections keep no state to go back to"));
  plan_.guard.action = GuardAction::skip;
  EXPECT_THAT(check(), HasSubstr("emulated sections compute no gradients"));
  plan_.sections[0].config.devices = {{DeviceId::Kind::cpu}};
  EXPECT_EQ(check(), "accepted");
}

}  // namespace
}  // namespace maestro
