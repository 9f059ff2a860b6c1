// SPDX-License-Identifier: Apache-2.0
#include "sections/pass_probe.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "actors/job/job_probes.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "actors/job/memory_table.hpp"
#include "actors/job/pass_memory.hpp"
#include "runtime/collective/thread_group.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

struct ProbeCase {
  std::string name;
  std::string job;
  std::vector<std::string> settings;
};

/// A rank's results: two micro-batches, the end of a step, and a micro-batch with newly packed weights.
struct Probed {
  std::vector<ObservedPasses> passes;
  ObservedStepEnd end;
  std::size_t working_bytes = 0;
};

Probed probe_rank(const ResolvedJob& plan, const MicroBatchPlan& batch, LayoutRank rank, const ProbeSite& site) {
  PassProbe probe(probed_section(plan, batch.section), rank, site);
  Probed probed;
  for (int pass = 0; pass < 2; ++pass) probed.passes.push_back(probe.pass(batch));
  probed.working_bytes = probe.working_bytes();
  if (!plan.graph.node(batch.section).trained()) return probed;
  probed.end = probe.step_end();
  probed.passes.push_back(probe.pass(batch));
  return probed;
}

/// Executes all ranks of a replica. Returns the first rank's results.
Probed probe_replica(const ResolvedJob& plan, const MicroBatchPlan& batch, const OperatorTable& table) {
  const Layout layout = plan.graph.node(batch.section).layout;
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<ParallelContext> contexts(static_cast<std::size_t>(layout.ranks()));
  for (const RankGroup& group : rank_groups(layout)) {
    std::int64_t rank = group.first;
    for (std::unique_ptr<Communicator>& made : make_thread_group(group.size)) {
      contexts[static_cast<std::size_t>(rank)].*group.member = groups.emplace_back(std::move(made)).get();
      rank += group.stride;
    }
  }
  std::vector<Probed> probed(contexts.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < probed.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ProbeSite site;
      site.table = &table;
      site.parallel = contexts[rank];
      probed[rank] = probe_rank(plan, batch, LayoutRank(static_cast<std::uint32_t>(rank)), site);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::move(probed.front());
}

std::vector<std::string> texts_of(const std::vector<ObservedCall>& calls) {
  std::vector<std::string> texts;
  for (const ObservedCall& observed : calls) texts.push_back(text_of(observed.call));
  return texts;
}

/// A section that computes with its own code; a pass that computes is counted. Trained by a loss of 0.
class OwnCode final : public Section {
 public:
  OwnCode(const SectionContext& context, std::atomic<int>& passes) : passes_(&passes) {
    parameters_.add({"weight", Shape{3, 5}, true, [](std::span<float> values) { std::ranges::fill(values, 1.0F); }});
    context.allocate(parameters_);
  }
  [[nodiscard]] Ports ports() const override { return {{{"tokens", DType::i32}}, {}}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    for (const std::int32_t token : inputs["tokens"].value().span<std::int32_t>()) EXPECT_LT(token, 40);
    ++*passes_;
    if (tape.recording()) tape.record_root([this] { parameters_.gradients()[0] += 1; });
    outputs.metric("loss", 0, 1);
  }
  [[nodiscard]] Cost cost(const SampleShape& sample) const override {
    return {1e4 * static_cast<double>(sample.tokens), 100};
  }
  std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
  std::atomic<int>* passes_;
};

TEST(WholePasses, stand_for_sections_that_do_not_run_dry) {  // DY-4
  std::ostringstream out;
  Console console({out, out, false, {}});
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  App app(JobDocument::parse("[train]\nglobal_batch = 8\n[own]\nmicro_batch = 4\n[data]\nkind = \"synthetic\"\n"
                             "vocabulary = 40\nsequence = 12\n",
                             "job.toml", {}),
          options, console);
  std::atomic<int> passes = 0;
  app.source("corpus");
  app.section("own", [&](const SectionContext& context) -> std::unique_ptr<Section> {
    return std::make_unique<OwnCode>(context, passes);
  });
  app.connect({"corpus", "tokens"}, {"own", "tokens"});
  const ResolvedJob plan = app.plan();
  const cpu::CpuOperatorTable table;
  const MicroBatchPlan batch = batches_of(plan, *plan.graph.find("own"), first_steps(plan, 1).front().samples).front();
  for (const bool own_memory : {false, true}) {
    ProbeSite site;
    site.own_memory = own_memory;
    const Probed dry = probe_rank(plan, batch, LayoutRank(0), site);
    EXPECT_EQ(passes, 0) << "a dry pass runs nothing of the section";
    EXPECT_TRUE(dry.passes.front().whole);
    EXPECT_EQ(dry.end.norm.size(), 1U);
    EXPECT_FALSE(dry.end.step.empty());
    EXPECT_EQ(dry.working_bytes, 4 * 100U) << "of a pass with four samples";
  }
  const Probed dry = probe_rank(plan, batch, LayoutRank(0), ProbeSite());
  const Probed real = probe_replica(plan, batch, table);
  EXPECT_EQ(passes, 3);
  for (std::size_t pass = 0; pass < real.passes.size(); ++pass) {
    EXPECT_EQ(texts_of(real.passes[pass].forward), texts_of(dry.passes[pass].forward));
    EXPECT_EQ(texts_of(real.passes[pass].backward), texts_of(dry.passes[pass].backward));
    ASSERT_EQ(real.passes[pass].forward.size(), 1U);
    EXPECT_GT(real.passes[pass].forward.front().ms, 0);
    EXPECT_EQ(dry.passes[pass].forward.front().ms, 0);
  }
  EXPECT_EQ(texts_of(dry.end.step), texts_of(real.end.step));
  const OperatorCall& forward = dry.passes.front().forward.front().call;
  const OperatorCall& backward = dry.passes.front().backward.front().call;
  EXPECT_EQ(forward.sizes[0], 4 * 12);
  EXPECT_EQ(forward.sizes[1], 4);
  EXPECT_EQ(forward.flops, 1e4 * 4 * 12);
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  EXPECT_NE(forward.op, backward.op);
}

class PassProbes : public ::testing::TestWithParam<ProbeCase> {};

TEST_P(PassProbes, dry_passes_make_the_calls_of_real_ones_in_the_same_memory) {  // DY-1, DY-2, EM-3, OB-1
  ResolvedJob plan = plan_of(GetParam().job, GetParam().settings);
  add_pass_bytes(plan);
  const cpu::CpuOperatorTable table;
  const auto units = first_steps(plan, 1);
  const auto plans = plans_of(plan, units, nullptr).value_or_throw();
  std::set<SectionId> seen;
  for (const MicroBatchPlan& batch : plans.front().micro_batches) {
    const GraphNode& node = plan.graph.node(batch.section);
    if (node.role == Role::source || !seen.insert(batch.section).second) continue;
    const Probed real = probe_replica(plan, batch, table);
    const Probed dry = probe_rank(plan, batch, LayoutRank(0), ProbeSite());
    for (std::size_t pass = 0; pass < real.passes.size(); ++pass) {
      EXPECT_GT(real.passes[pass].forward.size(), 0U) << node.name;
      EXPECT_EQ(texts_of(dry.passes[pass].forward), texts_of(real.passes[pass].forward)) << node.name << pass;
      EXPECT_EQ(texts_of(dry.passes[pass].backward), texts_of(real.passes[pass].backward)) << node.name << pass;
      EXPECT_EQ(texts_of(dry.passes[pass].packs), texts_of(real.passes[pass].packs)) << node.name << pass;
      EXPECT_GT(real.passes[pass].forward_ms, 0) << node.name;
      EXPECT_EQ(dry.passes[pass].forward_ms, 0) << node.name;
    }
    EXPECT_EQ(texts_of(dry.end.add_ranks), texts_of(real.end.add_ranks)) << node.name;
    EXPECT_EQ(texts_of(dry.end.norm), texts_of(real.end.norm)) << node.name;
    EXPECT_EQ(texts_of(dry.end.step), texts_of(real.end.step)) << node.name;
    EXPECT_EQ(dry.working_bytes, real.working_bytes) << node.name;
    if (GetParam().job != vision_job) {  // samples differ in length
      EXPECT_EQ(plan.pass_bytes[batch.section.value()], static_cast<double>(real.working_bytes)) << node.name;
    } else {
      EXPECT_GE(plan.pass_bytes[batch.section.value()], static_cast<double>(real.working_bytes)) << node.name;
    }
  }
  EXPECT_GE(seen.size(), 3U);
}

/// Returns settings of ranks that share experts. Each token takes all experts, so that routes are even as in dry
/// passes.
std::vector<std::string> on_shared_experts(const std::string& section, const std::vector<std::string>& layout,
                                           std::vector<std::string> settings = {}) {
  for (const char* const each : {"family=qwen3_moe", "experts=2", "experts_per_token=2", "expert=2"}) {
    settings.push_back(section + "." + each);
  }
  for (const std::string& each : layout) settings.push_back(section + "." + each);
  return settings;
}

std::vector<ProbeCase> cases() {
  const std::string& kd = distillation_job;
  const std::string& vlm = vision_job;
  return {
      {"distillation", kd, {}},
      {"bf16", kd, {"teacher.precision=bf16", "student.precision=bf16", "plain.precision=bf16"}},
      {"tensor", kd, {"teacher.tensor=2", "student.tensor=2", "plain.tensor=2"}},
      {"context", kd, {"teacher.context=2", "student.context=2", "plain.context=2"}},
      {"pipeline", kd, {"student.pipeline=2", "plain.pipeline=2"}},
      {"shards", kd, {"student.replicas=2", "student.zero=true", "plain.moments=bf16"}},
      {"recompute", kd, {"plain.recompute=1"}},
      {"adapters", kd, {"plain.lora={rank=2}", "plain.weights=random"}},
      {"experts", kd,
       on_shared_experts("teacher", {"context=2"}, on_shared_experts("plain", {"tensor=2", "context=2"}))},
      {"pictures", vlm, {}},
      {"pictures_tensor", vlm, {"vision.tensor=2", "llm.tensor=2"}},
      {"frozen_llm", vlm, {"llm.trained=false", "llm.weights=random"}},
  };
}

TEST(PassMemory, of_sections_that_do_not_run_dry_is_that_of_their_cost) {
  ResolvedJob plan = plan_of(distillation_job, {"teacher.devices=[\"emulated:0\"]"});
  add_pass_bytes(plan);
  EXPECT_LT(plan.pass_bytes[plan.graph.find("teacher")->value()], 0);
  EXPECT_LT(plan.pass_bytes[plan.graph.find("corpus")->value()], 0);
  EXPECT_GT(plan.pass_bytes[plan.graph.find("student")->value()], 0);
  const auto of_student = [](const ResolvedJob& estimated) {
    const MemoryEstimate estimate = estimate_memory(estimated);
    return std::ranges::find(estimate.ranks, *estimated.graph.find("student"), &RankMemory::section)->use.activations;
  };
  const double in_flight = of_student(plan) / plan.pass_bytes[plan.graph.find("student")->value()];
  EXPECT_EQ(in_flight, std::round(in_flight)) << "whole arenas";
  EXPECT_GE(in_flight, 1);
  EXPECT_NE(of_student(plan), of_student(plan_of(distillation_job)));
}

TEST(SameWork, needs_equal_keys_edges_and_calls) {
  std::string job = "[train]\nglobal_batch = 8\n[data]\nkind = \"synthetic\"\nvocabulary = 40\nsequence = 12\n";
  for (const std::string section : {"one", "two", "deeper", "frozen", "teacher"}) {
    job += "[" + section + "]\nfamily = \"llama\"\nwidth = 16\nheads = 4\nvocabulary = 40\npositions = 12\n";
    job += "weights = \"random\"\nlayers = " + std::string(section == "deeper" ? "3" : "2") + "\n";
  }
  job += "[student]\nfamily = \"llama\"\nlayers = 2\nwidth = 16\nheads = 4\nvocabulary = 40\npositions = 12\n";
  std::ostringstream out;
  Console console({out, out, false, {}});
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  App app(JobDocument::parse(job, "job.toml", {}), options, console);
  app.source("corpus");
  for (const std::string section : {"one", "two", "deeper"}) app.section(section, "decoder_lm");
  app.section("frozen", "decoder_lm").forward_only();
  app.section("teacher", "decoder_trunk").forward_only();
  app.section("student", "distilled_decoder");
  app.connect({"corpus", "tokens"}, {"teacher", "tokens"});
  app.connect({"teacher", "hidden"}, {"student", "teacher_hidden"});
  for (const std::string section : {"one", "two", "deeper", "frozen", "student"}) {
    for (const char* const port : {"tokens", "targets"}) app.connect({"corpus", port}, {section, port});
  }
  const ResolvedJob plan = app.plan();
  const std::vector<SampleRef> samples = first_steps(plan, 1).front().samples;
  EXPECT_TRUE(same_work(plan, "one", "two", samples));
  EXPECT_TRUE(same_work(plan, "two", "one", samples));
  for (const char* const other : {"deeper", "frozen", "teacher", "student"}) {
    EXPECT_FALSE(same_work(plan, "one", other, samples)) << other;
  }
}

INSTANTIATE_TEST_SUITE_P(cases, PassProbes, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace maestro::testing
