#include "runtime/schedule/step_planner.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "runtime/wavefront/lower_bound.hpp"
#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;

std::vector<SampleRef> random_samples(Generator& random, std::int64_t count) {
  std::vector<SampleRef> samples;
  for (std::int64_t at = 0; at < count; ++at) {
    SampleRef sample{SampleId(random() % 1000), draw(random, 1, 9)};
    if (random() % 2 == 0) sample.patches = draw(random, 1, 5);
    samples.push_back(sample);
  }
  return samples;
}

StepPlannerOptions options_of(const SectionGraph& graph, std::string_view policy, FlowLimits limits) {
  StepPlannerOptions options;
  options.graph = &graph;
  PolicyOptions settings;
  settings.evaluations = 20;
  options.policy = make_policy(policy, settings);
  options.costs = CostModel(
      [](SectionId section, const SampleRef& sample) {
        const double work = static_cast<double>(sample.tokens + 3 * sample.patches) * (1.0 + section.value());
        return PassCost{work, 2 * work};
      },
      1);
  options.limits = limits;
  return options;
}

/// Rows of a micro-batch, each by the place of its sample in the step and its position there.
using Row = std::pair<std::uint32_t, std::int64_t>;

std::vector<Row> rows_of(const MicroBatchPlan& batch, Axis axis) {
  std::vector<Row> rows;
  for (const SampleRef& sample : batch.samples) {
    for (std::int64_t position = 0; position < sample.rows(axis); ++position) rows.emplace_back(sample.place, position);
  }
  return rows;
}

using Counters = std::map<std::tuple<EdgeId, bool, ReplicaIndex>, std::uint64_t>;

class PlanCheck {
 public:
  PlanCheck(const SectionGraph& graph, const std::vector<SampleRef>& samples) : graph_(&graph), samples_(&samples) {}

  /// ST-1, ST-2; sequences are checked against the counters of the whole run (ST-3).
  void check(const StepPlan& plan, Counters& counters) {
    each_section_has_its_samples_once(plan);
    pieces_cover_arrivals(plan);
    sequences_have_no_gaps(plan, counters);
  }

 private:
  void each_section_has_its_samples_once(const StepPlan& plan) {
    std::map<SectionId, std::multiset<std::uint64_t>> seen;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      EXPECT_EQ(batch.step, plan.step);
      EXPECT_EQ(batch.pass, plan.pass);
      EXPECT_LT(batch.replica.value(), graph_->node(batch.section).replicas);
      EXPECT_FALSE(batch.samples.empty());
      EXPECT_LE(static_cast<std::int64_t>(batch.samples.size()), graph_->node(batch.section).micro_batch);
      for (const SampleRef& sample : batch.samples) seen[batch.section].insert(sample.id.value());
    }
    for (std::uint32_t index = 0; index < graph_->nodes().size(); ++index) {
      std::multiset<std::uint64_t> expected;
      for (const SampleRef& sample : *samples_) {
        if (activates(graph_->nodes()[index], sample)) expected.insert(sample.id.value());
      }
      EXPECT_EQ(seen[SectionId(index)], expected) << graph_->nodes()[index].name;
    }
  }

  void pieces_cover_arrivals(const StepPlan& plan) {
    std::map<std::tuple<EdgeId, bool, ReplicaIndex, std::uint64_t>,
             std::pair<const MicroBatchPlan*, const ArrivalPlan*>>
        receivers;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      for (const ArrivalPlan& arrival : batch.arrivals) {
        receivers[{arrival.edge, arrival.gradient, batch.replica, arrival.sequence}] = {&batch, &arrival};
      }
    }
    std::map<const ArrivalPlan*, std::vector<int>> written;
    for (const MicroBatchPlan& sender : plan.micro_batches) {
      for (const PieceOut& piece : sender.pieces) {
        const GraphEdge& edge = graph_->edge(piece.edge);
        EXPECT_EQ(sender.section, piece.gradient ? edge.to : edge.from);
        const auto found = receivers.find({piece.edge, piece.gradient, piece.receiver, piece.sequence});
        ASSERT_NE(found, receivers.end());
        const auto& [receiver, arrival] = found->second;
        EXPECT_EQ(receiver->section, piece.gradient ? edge.from : edge.to);
        ASSERT_LT(piece.index, arrival->pieces.size());
        EXPECT_EQ(arrival->pieces[piece.index].rows, piece.rows);
        EXPECT_EQ(arrival->pieces[piece.index].sender, sender.replica);
        const std::vector<Row> sent = rows_of(sender, edge.axis);
        const std::vector<Row> wanted = rows_of(*receiver, edge.axis);
        auto& counts = written[arrival];
        counts.resize(wanted.size());
        for (std::int64_t row = 0; row < piece.rows; ++row) {
          const auto from = static_cast<std::size_t>(piece.source_row + row);
          const auto to = static_cast<std::size_t>(piece.target_row + row);
          ASSERT_LT(from, sent.size());
          ASSERT_LT(to, counts.size());
          EXPECT_EQ(sent[from], wanted[to]);
          ++counts[to];
        }
      }
    }
    EXPECT_EQ(written.size(), receivers.size());
    for (const auto& [arrival, counts] : written) {
      for (const int count : counts) EXPECT_EQ(count, 1);
    }
  }

  void sequences_have_no_gaps(const StepPlan& plan, Counters& counters) {
    std::vector<const MicroBatchPlan*> backward;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      std::set<std::pair<EdgeId, bool>> expected;
      for (const EdgeId edge : graph_->inputs(batch.section)) {
        if (batch.rows(graph_->edge(edge).axis) > 0) expected.emplace(edge, false);
      }
      for (const EdgeId edge : graph_->outputs(batch.section)) {
        const GraphEdge& joined = graph_->edge(edge);
        if (joined.gradient && plan.pass == Pass::train && batch.rows(joined.axis) > 0) expected.emplace(edge, true);
      }
      for (const ArrivalPlan& arrival : batch.arrivals) {
        EXPECT_EQ(expected.erase({arrival.edge, arrival.gradient}), 1u);
        if (arrival.gradient) continue;
        const std::uint64_t next = counters[{arrival.edge, false, batch.replica}]++;
        EXPECT_EQ(arrival.sequence, next);
      }
      EXPECT_TRUE(expected.empty());
      backward.push_back(&batch);
    }
    std::stable_sort(backward.begin(), backward.end(),
                     [](const auto* a, const auto* b) { return a->backward_rank < b->backward_rank; });
    for (const MicroBatchPlan* batch : backward) {
      for (const ArrivalPlan& arrival : batch->arrivals) {
        if (!arrival.gradient) continue;
        const std::uint64_t next = counters[{arrival.edge, true, batch->replica}]++;
        EXPECT_EQ(arrival.sequence, next);
      }
    }
  }

  const SectionGraph* graph_;
  const std::vector<SampleRef>* samples_;
};

/// As many micro-batches in flight as any plan may need.
SectionGraph roomy(const SectionGraph& graph) {
  SectionGraph raised = graph;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) raised.set_max_in_flight(SectionId(index), 16);
  return raised;
}

class StepPlannerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StepPlannerTest, every_row_reaches_its_place_once_in_every_step_of_a_random_run) {  // ST-1, ST-2, ST-3
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const SectionGraph graph = roomy(testing::random_graph(random, {}, draw(random, 1, 8)));
    StepPlanner planner(options_of(graph, GetParam(), {draw(random, 1, 3), 13, 13}));
    Counters counters;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const Pass pass = random() % 3 == 0 ? Pass::evaluate : Pass::train;
      const std::vector<SampleRef> samples = random_samples(random, draw(random, 1, 13));
      const Result<PlannedStep> planned = planner.plan(StepId(step), pass, samples, 0.25);
      ASSERT_TRUE(planned) << planned.error().message;
      PlanCheck(graph, samples).check(planned->plan, counters);
      if (HasFatalFailure()) return;
      const Status legal = check_schedule(planned->workload, planned->schedule);
      EXPECT_TRUE(legal) << legal.error().message;
      EXPECT_GE(planned->schedule.makespan_ms, lower_bound_ms(planned->workload) * (1 - 1e-9));
    }
  }
}

TEST_P(StepPlannerTest, micro_batches_are_the_same_under_every_number_of_replicas) {  // ST-4, MC-2
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const std::vector<SampleRef> samples = random_samples(random, 11);
    Generator first(seed);
    const SectionGraph spread = roomy(testing::random_graph(first, {}, 4));
    SectionGraph single;
    for (GraphNode node : spread.nodes()) {
      node.replicas = 1;
      single.add(node);
    }
    for (const GraphEdge& edge : spread.edges()) {
      single.connect(spread.node(edge.from).name, edge.from_port, spread.node(edge.to).name, edge.to_port);
    }
    const FlowLimits limits{2, 11, 0};
    using Cut = std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint64_t>>;
    const auto cut_of = [&](const SectionGraph& graph) {
      Cut cut;
      const auto planned =
          StepPlanner(options_of(graph, GetParam(), limits)).plan(StepId(1), Pass::train, samples, 0.5);
      EXPECT_TRUE(planned) << planned.error().message;
      for (const MicroBatchPlan& batch : planned->plan.micro_batches) {
        EXPECT_EQ(batch.loss_scale, 0.5);
        for (const SampleRef& sample : batch.samples) {
          cut[{batch.section.value(), batch.index}].push_back(sample.id.value());
        }
      }
      return cut;
    };
    EXPECT_EQ(cut_of(spread), cut_of(single));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, StepPlannerTest, ::testing::Values("arrival", "bulk_synchronous", "wavefront"));

TEST(StepPlanner, equal_steps_share_one_plan) {
  Generator random(4);
  const SectionGraph graph = roomy(testing::random_graph(random, {}, 8));
  StepPlanner planner(options_of(graph, "wavefront", {2, 8, 0}));
  const std::vector<SampleRef> samples = random_samples(random, 8);
  const auto first = planner.plan(StepId(1), Pass::train, samples, 1);
  const auto second = planner.plan(StepId(2), Pass::train, samples, 1);
  ASSERT_TRUE(first && second);
  ASSERT_EQ(first->schedule.passes.size(), second->schedule.passes.size());
  for (std::size_t at = 0; at < first->schedule.passes.size(); ++at) {
    EXPECT_EQ(first->schedule.passes[at].task, second->schedule.passes[at].task);
    EXPECT_EQ(first->schedule.passes[at].replica, second->schedule.passes[at].replica);
  }
}

TEST(StepPlanner, a_limit_that_no_plan_can_keep_is_an_error_that_names_it) {
  SectionGraph graph;
  GraphNode encoder;
  encoder.name = "encoder";
  encoder.ports.outputs.push_back({"out", DType::f32, 1, true, false});
  GraphNode decoder;
  decoder.name = "decoder";
  decoder.micro_batch = 4;
  decoder.ports.inputs.push_back({"in", DType::f32, 1, true, false});
  graph.add(encoder);
  graph.add(decoder);
  graph.connect("encoder", "out", "decoder", "in");
  Generator random(1);
  StepPlanner planner(options_of(graph, "wavefront", {1, 8, 0}));
  const auto planned = planner.plan(StepId(1), Pass::train, random_samples(random, 8), 1);
  ASSERT_FALSE(planned);
  EXPECT_NE(planned.error().message.find("encoder"), std::string::npos) << planned.error().message;
  EXPECT_NE(planned.error().message.find("max_in_flight"), std::string::npos) << planned.error().message;
}

}  // namespace
}  // namespace maestro
