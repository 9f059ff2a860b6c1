// SPDX-License-Identifier: Apache-2.0
// Costs, windows and packing of StepPlanner with test policies, and steps without a section.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/schedule/planner_options.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using testing::Generator;
using testing::options_of;
using testing::random_samples;
using testing::roomy;

/// Returns a trained encoder that feeds a trained decoder, each with micro-batches of a single sample.
SectionGraph encoder_and_decoder(std::int64_t max_in_flight) {
  SectionGraph graph;
  GraphNode encoder;
  encoder.name = "encoder";
  encoder.max_in_flight = max_in_flight;
  encoder.ports.outputs.push_back({"out", DType::f32, 1, true, false});
  GraphNode decoder;
  decoder.name = "decoder";
  decoder.ports.inputs.push_back({"in", DType::f32, 1, true, false});
  graph.add(encoder);
  graph.add(decoder);
  graph.connect("encoder", "out", "decoder", "in");
  return graph;
}

/// Returns options with forward costs by tokens; backward costs are by patches in the encoder, 20 in the decoder.
StepPlannerOptions with_costs_by_axis(const SectionGraph& graph) {
  StepPlannerOptions options = options_of(graph, "wavefront", {4, 8, 8});
  options.costs = CostModel(
      [](SectionId section, const SampleRef& sample) {
        const double backward = section == SectionId(0) ? static_cast<double>(sample.patches) : 20.0;
        return PassCost{static_cast<double>(sample.tokens), backward};
      },
      1);
  return options;
}

TEST(StepPlanner, a_step_that_differs_in_backward_times_alone_has_a_plan_of_its_own) {
  const SectionGraph graph = encoder_and_decoder(4);
  std::vector<SampleRef> samples;
  for (std::uint32_t at = 0; at < 6; ++at) samples.push_back({SampleId(at), 3, 1});
  StepPlanner planner(with_costs_by_axis(graph));
  ASSERT_TRUE(planner.plan(StepId(1), Pass::train, samples, 1));
  for (SampleRef& sample : samples) sample.patches = 20;
  const auto second = planner.plan(StepId(2), Pass::train, samples, 1);
  ASSERT_TRUE(second);
  const Status legal = check_schedule(second->workload, second->schedule);
  EXPECT_TRUE(legal) << legal.error().message;
}

TEST(StepPlanner, an_edge_is_planned_with_its_measured_time) {
  const SectionGraph graph = encoder_and_decoder(4);
  std::vector<SampleRef> samples;
  for (std::uint32_t at = 0; at < 4; ++at) samples.push_back({SampleId(at), 3, 1});
  StepPlanner planner(with_costs_by_axis(graph));
  const auto before = planner.plan(StepId(1), Pass::train, samples, 1);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->workload.edges.at(0).transfer_ms, 0);
  planner.costs().transferred({{EdgeId(0), Direction::gradient}, 50});
  const auto planned = planner.plan(StepId(2), Pass::train, samples, 1);
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->workload.edges.at(0).transfer_ms, 50);
  const Status legal = check_schedule(planned->workload, planned->schedule);
  EXPECT_TRUE(legal) << legal.error().message;
  EXPECT_GE(planned->schedule.makespan_ms, 3 + 50 + 3 + 20 + 50 + 1) << "both ways";
  std::map<std::size_t, double> made_ms;  // by task
  for (const PlannedPass& pass : planned->schedule.passes) {
    if (!pass.backward) made_ms[pass.task] = pass.end_ms;
  }
  for (const PlannedPass& pass : planned->schedule.passes) {
    for (const TaskInput& input : planned->workload.tasks[pass.task].inputs) {
      EXPECT_GE(pass.start_ms, made_ms.at(input.task) + 50);
    }
  }
}

TEST(StepPlanner, a_section_that_runs_both_passes_in_one_go_is_planned_with_the_sum_of_their_times) {
  const SectionGraph graph = encoder_and_decoder(1);
  StepPlanner planner(with_costs_by_axis(graph));
  const std::vector<SampleRef> one{{SampleId(1), 3, 5}};
  const auto trained = planner.plan(StepId(1), Pass::train, one, 1);
  ASSERT_TRUE(trained);
  ASSERT_EQ(trained->workload.tasks.size(), 2u);
  EXPECT_EQ(trained->workload.tasks[0].forward_ms, 3);  // the encoder awaits a gradient
  EXPECT_EQ(trained->workload.tasks[0].backward_ms, 5);
  EXPECT_EQ(trained->workload.tasks[1].forward_ms, 23);
  EXPECT_EQ(trained->workload.tasks[1].backward_ms, 0);
  const auto evaluated = planner.plan(StepId(2), Pass::evaluate, one, 1);
  ASSERT_TRUE(evaluated);
  EXPECT_EQ(evaluated->workload.tasks[0].backward_ms, 0);
  EXPECT_EQ(evaluated->workload.tasks[1].forward_ms, 3);
}

/// Runs the passes of encoder_and_decoder() in a given order. `order`: encoder passes by micro-batch; the second
/// occurrence of a micro-batch is its backward pass. The decoder follows each forward pass.
class FixedOrder final : public SchedulingPolicy {
 public:
  explicit FixedOrder(std::vector<std::size_t> order) : order_(std::move(order)) {}
  [[nodiscard]] std::string_view name() const override { return "fixed"; }
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override {
    Schedule schedule;
    const std::size_t samples = workload.tasks.size() / 2;
    std::vector<bool> forwarded(samples, false);
    const auto run = [&](std::size_t task, bool backward) {
      const double start = schedule.makespan_ms++;
      schedule.passes.push_back({.task = task, .backward = backward, .start_ms = start, .end_ms = start + 1});
    };
    for (const std::size_t sample : order_) {
      run(sample, forwarded[sample]);
      if (!forwarded[sample]) run(samples + sample, false);
      forwarded[sample] = true;
    }
    return schedule;
  }

 private:
  std::vector<std::size_t> order_;
};

TEST(StepPlanner, a_plan_that_holds_more_inputs_than_the_window_is_made_again_by_arrival) {  // ST-5
  const SectionGraph graph = encoder_and_decoder(2);
  const std::vector<SampleRef> three{{SampleId(0), 1}, {SampleId(1), 1}, {SampleId(2), 1}};
  const auto backward_orders = [&](std::vector<std::size_t> order) {
    StepPlannerOptions options = options_of(graph, "arrival", {2, 3, 0, 2});
    EXPECT_EQ(input_window(graph, SectionId(0), options.limits), 2);
    options.policy = std::make_shared<FixedOrder>(std::move(order));
    const auto planned = StepPlanner(std::move(options)).plan(StepId(1), Pass::train, three, 1);
    EXPECT_TRUE(planned) << planned.error().message;
    std::vector<std::uint32_t> orders;
    for (const MicroBatchPlan& batch : planned->plan.micro_batches) {
      if (batch.section == SectionId(0)) orders.push_back(batch.backward_order);
    }
    return orders;
  };
  using Orders = std::vector<std::uint32_t>;
  EXPECT_EQ(backward_orders({0, 1, 1, 0, 2, 2}), (Orders{1, 0, 2}));  // input 2 begins after 0 has left: taken
  EXPECT_EQ(backward_orders({0, 1, 1, 2, 0, 2}), (Orders{0, 1, 2}));  // input 2 would begin two places after 0
}

/// Plans like `arrival`, packs samples in reverse, and keeps the workload that it received.
class RecordingPolicy final : public SchedulingPolicy {
 public:
  explicit RecordingPolicy(Workload& seen) : seen_(&seen) {}
  [[nodiscard]] std::string_view name() const override { return "recording"; }
  [[nodiscard]] std::vector<std::size_t> packing_order(const Workload&, std::size_t count) const override {
    std::vector<std::size_t> order;
    while (count > 0) order.push_back(--count);
    return order;
  }
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override {
    *seen_ = workload;
    return arrival_->plan(workload);
  }

 private:
  Workload* seen_;
  std::shared_ptr<const SchedulingPolicy> arrival_ = make_policy("arrival");
};

TEST(StepPlanner, the_policy_sees_devices_and_slots_and_chooses_the_packing_order) {
  SectionGraph graph;
  GraphNode teacher;
  teacher.name = "teacher";
  teacher.role = Role::frozen;
  teacher.ports.outputs.push_back({"out", DType::f32, 1, true, false});
  GraphNode encoder = teacher;
  encoder.name = "encoder";
  encoder.role = Role::trained;
  encoder.max_in_flight = 2;
  GraphNode decoder;
  decoder.name = "decoder";
  decoder.micro_batch = 2;
  decoder.replicas = 2;
  decoder.ports.inputs = {{"teacher", DType::f32, 1, true, false}, {"encoder", DType::f32, 1, true, false}};
  for (const GraphNode& node : {teacher, encoder, decoder}) graph.add(node);
  graph.connect("teacher", "out", "decoder", "teacher");
  graph.connect("encoder", "out", "decoder", "encoder");
  Workload seen;
  StepPlannerOptions options = options_of(graph, "arrival", {3, 4, 0});
  options.policy = std::make_shared<RecordingPolicy>(seen);
  options.devices = {{{0}}, {{1}}, {{0, 3}, {2}}};
  const std::vector<SampleRef> samples{{SampleId(10), 1}, {SampleId(11), 1}, {SampleId(12), 1}, {SampleId(13), 1}};
  const auto planned = StepPlanner(std::move(options)).plan(StepId(1), Pass::train, samples, 1);
  ASSERT_TRUE(planned) << planned.error().message;
  ASSERT_EQ(seen.sections.size(), 3u);
  EXPECT_EQ(seen.sections[2].devices, (std::vector<std::vector<int>>{{0, 3}, {2}}));
  ASSERT_EQ(seen.edges.size(), 2u);
  EXPECT_EQ(seen.edges[0].slots, planned_slots(graph, EdgeId(0), {3, 4, 0}));
  EXPECT_EQ(seen.edges[1].slots, no_limit) << "the encoder's limit in flight bounds them";
  for (const MicroBatchPlan& batch : planned->plan.micro_batches) {
    for (const SampleRef& sample : batch.samples) EXPECT_EQ(sample.id.value(), 13 - sample.index_in_step);
  }
}

TEST(StepPlanner, a_micro_batch_needs_no_pass_of_a_producer_that_has_no_rows_for_it) {
  SectionGraph graph;
  GraphNode source;
  source.name = "data";
  source.role = Role::source;
  source.micro_batch = 8;
  source.ports.outputs.push_back({"tokens", DType::f32, 1, false, false});
  GraphNode reader;
  reader.name = "reader";
  reader.role = Role::frozen;
  reader.ports.inputs.push_back({"tokens", DType::f32, 1, false, false});
  reader.ports.outputs.push_back({"out", DType::f32, 1, false, false, Axis::patches});
  GraphNode llm;
  llm.name = "llm";
  llm.micro_batch = 2;
  llm.ports.inputs = {{"tokens", DType::f32, 1, false, false}, {"visual", DType::f32, 1, false, true, Axis::patches}};
  for (const GraphNode& node : {source, reader, llm}) graph.add(node);
  graph.connect("data", "tokens", "reader", "tokens");
  graph.connect("data", "tokens", "llm", "tokens");
  graph.connect("reader", "out", "llm", "visual");
  const std::vector<SampleRef> samples{{SampleId(0), 3, 0}, {SampleId(1), 3, 2}};
  const auto planned = StepPlanner(options_of(graph, "arrival", {4, 2, 0})).plan(StepId(1), Pass::train, samples, 1);
  ASSERT_TRUE(planned) << planned.error().message;
  ASSERT_EQ(planned->workload.tasks.size(), 3u);  // the reader runs for both samples
  ASSERT_EQ(planned->workload.tasks[2].inputs.size(), 1u);
  EXPECT_EQ(planned->workload.tasks[2].inputs[0].task, 1u);
}

TEST(StepPlanner, the_passes_of_a_source_wait_for_no_phase) {
  SectionGraph graph;
  GraphNode source;
  source.name = "data";
  source.role = Role::source;
  source.micro_batch = 8;
  source.ports.outputs.push_back({"out", DType::f32, 1, true, false});
  graph.add(source);
  const SectionGraph both = encoder_and_decoder(1);
  for (GraphNode node : both.nodes()) {
    if (node.name == "encoder") node.ports.inputs.push_back({"in", DType::f32, 1, false, false});
    graph.add(node);
  }
  graph.connect("data", "out", "encoder", "in");
  graph.connect("encoder", "out", "decoder", "in");
  Generator random(2);
  const SectionGraph room = roomy(graph);
  StepPlanner planner(options_of(room, "bulk_synchronous", {4, 8, 0}));
  const auto planned = planner.plan(StepId(1), Pass::train, random_samples(random, 8), 1);
  ASSERT_TRUE(planned) << planned.error().message;
  for (const MicroBatchPlan& batch : planned->plan.micro_batches) {
    EXPECT_EQ(batch.phased, batch.section != SectionId(0));
  }
}

TEST(StepPlanner, a_section_that_is_trained_already_is_left_out_and_changes_no_other) {  // ST-6, ST-3
  SectionGraph graph = testing::distillation_graph(2);
  testing::add_section(graph, "plain", Role::trained, {"text"}, 2);
  const SectionId plain(3);
  StepPlannerOptions options = options_of(graph, "wavefront", {2, 8, 0});
  StepPlanner all(options);
  options.trained_until[plain] = StepId(2);
  StepPlanner others(options);
  Generator random(7);
  std::uint64_t first = 1000;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const std::vector<SampleRef> samples = random_samples(random, 8);
    std::vector<MicroBatchPlan> wanted = all.plan(StepId(step), Pass::train, samples, 1)->plan.micro_batches;
    const std::vector<MicroBatchPlan> found = others.plan(StepId(step), Pass::train, samples, 1)->plan.micro_batches;
    if (step < 3) std::erase_if(wanted, [&](const MicroBatchPlan& batch) { return batch.section == plain; });
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t at = 0; at < found.size(); ++at) {
      EXPECT_EQ(found[at].section, wanted[at].section);
      EXPECT_EQ(found[at].replica, wanted[at].replica);
      EXPECT_EQ(found[at].samples.front().id, wanted[at].samples.front().id);
      EXPECT_EQ(found[at].backward_order, wanted[at].backward_order);
      if (found[at].section == plain) first = std::min(first, found[at].arrivals.front().sequence);
    }
  }
  EXPECT_EQ(first, 0U) << "sequences have no gap";
}

}  // namespace
}  // namespace maestro
