// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/step_planner.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "runtime/wavefront/lower_bound.hpp"
#include "tests/schedule/planner_options.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;
using testing::options_of;
using testing::random_samples;
using testing::roomy;

/// A row: its sample's place in the step, its position there and, for a tensor sharded by vocabulary, the tensor index
/// of its columns.
using Row = std::tuple<std::uint32_t, std::int64_t, std::int64_t>;

/// Returns the rows that a rank of the section's replica holds.
std::vector<Row> rows_of(const MicroBatchPlan& batch, const GraphEdge& edge, const Layout& layout, Sharding sharding,
                         std::int64_t rank) {
  const std::int64_t columns = sharding == Sharding::vocabulary ? layout.tensor_of(rank) : 0;
  std::vector<Row> rows;
  for (const SampleRef& sample : batch.samples) {
    for (std::int64_t position = 0; position < sample.rows(edge.axis, edge.sources); ++position) {
      rows.emplace_back(sample.index_in_step, position, columns);
    }
  }
  const RowRange held = layout.rows(sharding, static_cast<std::int64_t>(rows.size()), rank);
  return {rows.begin() + held.first, rows.begin() + held.end()};
}

using Counters = std::map<std::pair<Channel, ReplicaIndex>, std::uint64_t>;

class PlanCheck {
 public:
  PlanCheck(const SectionGraph& graph, const std::vector<SampleRef>& samples) : graph_(&graph), samples_(&samples) {}

  /// Checks ST-1, ST-2; sequences are compared with the run's counters (ST-3).
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

  [[nodiscard]] Layout layout_of(const MicroBatchPlan& batch) const {
    return graph_->node(batch.section).layout_of(batch.replica);
  }
  /// Returns the rows of an edge that a rank holds in the section at either end.
  [[nodiscard]] std::vector<Row> rows_at(const MicroBatchPlan& batch, EdgeId id, LayoutRank rank) const {
    const GraphEdge& edge = graph_->edge(id);
    const Sharding sharding = batch.section == edge.from ? edge.from_sharding : edge.to_sharding;
    return rows_of(batch, edge, layout_of(batch), sharding, rank.value());
  }

  void pieces_cover_arrivals(const StepPlan& plan) {
    using Key = std::tuple<Channel, ReplicaIndex, std::uint64_t, LayoutRank>;
    struct Receiver {
      const ArrivalPlan* arrival = nullptr;
      std::vector<Row> wanted;
      std::vector<int> written;  // number of writes by row
      std::set<std::uint32_t> indices;
    };
    std::map<Key, Receiver> receivers;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      for (const ArrivalPlan& arrival : batch.arrivals) {
        EXPECT_EQ(batch.section, graph_->receiver(arrival.channel));
        ASSERT_LT(arrival.rank.value(), layout_of(batch).ranks());
        Receiver& receiver = receivers[{arrival.channel, batch.replica, arrival.sequence, arrival.rank}];
        receiver = {&arrival, rows_at(batch, arrival.channel.edge, arrival.rank), {}, {}};
        receiver.written.resize(receiver.wanted.size());
      }
    }
    for (const MicroBatchPlan& sender : plan.micro_batches) {
      for (const PieceOut& piece : sender.pieces) {
        EXPECT_EQ(sender.section, graph_->sender(piece.channel));
        ASSERT_LT(piece.source_rank.value(), layout_of(sender).ranks());
        const auto found = receivers.find({piece.channel, piece.receiver, piece.sequence, piece.target_rank});
        ASSERT_NE(found, receivers.end());
        Receiver& receiver = found->second;
        ASSERT_LT(piece.index, receiver.arrival->pieces.size());
        EXPECT_TRUE(receiver.indices.insert(piece.index).second);
        const ArrivalPiece& awaited = receiver.arrival->pieces[piece.index];
        EXPECT_EQ(awaited.rows, piece.rows);
        EXPECT_EQ(awaited.sender, sender.replica);
        EXPECT_EQ(awaited.sender_rank, piece.source_rank);
        const std::vector<Row> sent = rows_at(sender, piece.channel.edge, piece.source_rank);
        for (std::int64_t row = 0; row < piece.rows; ++row) {
          const auto from = static_cast<std::size_t>(piece.source_row + row);
          const auto to = static_cast<std::size_t>(piece.target_row + row);
          ASSERT_LT(from, sent.size());
          ASSERT_LT(to, receiver.written.size());
          EXPECT_EQ(sent[from], receiver.wanted[to]);
          ++receiver.written[to];
        }
      }
    }
    for (const auto& [key, receiver] : receivers) {
      EXPECT_EQ(receiver.indices.size(), receiver.arrival->pieces.size());
      for (const int times : receiver.written) EXPECT_EQ(times, 1);
    }
  }

  /// Expects an arrival for every rank, all with the next sequence; the counters advance after the last rank.
  void sequence_is_next(const MicroBatchPlan& batch, const ArrivalPlan& arrival, Counters& counters) {
    std::uint64_t& next = counters[{arrival.channel, batch.replica}];
    EXPECT_EQ(arrival.sequence, next);
    if (arrival.rank.value() + 1 == layout_of(batch).ranks()) ++next;
  }

  void sequences_have_no_gaps(const StepPlan& plan, Counters& counters) {
    std::vector<const MicroBatchPlan*> backward;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      std::set<std::pair<Channel, LayoutRank>> expected;
      const auto ranks = static_cast<std::uint32_t>(layout_of(batch).ranks());
      for (const Channel channel : graph_->received(batch.section)) {
        if (channel.gradient() && plan.pass != Pass::train) continue;
        const GraphEdge& edge = graph_->edge(channel.edge);
        if (batch.rows(edge.axis, edge.sources) == 0) continue;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) expected.emplace(channel, LayoutRank(rank));
      }
      for (const ArrivalPlan& arrival : batch.arrivals) {
        EXPECT_EQ(expected.erase({arrival.channel, arrival.rank}), 1u);
        if (!arrival.channel.gradient()) sequence_is_next(batch, arrival, counters);
      }
      EXPECT_TRUE(expected.empty());
      backward.push_back(&batch);
    }
    std::stable_sort(backward.begin(), backward.end(),
                     [](const auto* a, const auto* b) { return a->backward_order < b->backward_order; });
    for (const MicroBatchPlan* batch : backward) {
      for (const ArrivalPlan& arrival : batch->arrivals) {
        if (arrival.channel.gradient()) sequence_is_next(*batch, arrival, counters);
      }
    }
  }

  const SectionGraph* graph_;
  const std::vector<SampleRef>* samples_;
};

/// Compares the order and phases of the plan's passes with its schedule.
void passes_are_those_of_the_schedule(const PlannedStep& planned) {
  std::map<std::pair<SectionId, std::uint32_t>, const MicroBatchPlan*> batches;
  for (const MicroBatchPlan& batch : planned.plan.micro_batches) batches[{batch.section, batch.index}] = &batch;
  struct Passes {
    std::uint32_t forward = 0;
    std::uint32_t backward = 0;
  };
  std::map<std::pair<SectionId, std::int64_t>, Passes> before;  // by lane
  for (const PlannedPass& pass : planned.schedule.passes) {
    const auto& task = planned.tasks[pass.task];
    Passes& of_lane = before[{task.first, pass.replica}];
    const MicroBatchPlan& batch = *batches.at(task);
    if (pass.backward) {
      EXPECT_EQ(batch.backward_order, of_lane.backward++);
      EXPECT_EQ(batch.backward_after, of_lane.forward);
      EXPECT_EQ(batch.backward_phase, static_cast<std::uint32_t>(pass.phase));
    } else {
      ++of_lane.forward;
      EXPECT_EQ(batch.forward_phase, static_cast<std::uint32_t>(pass.phase));
      EXPECT_EQ(batch.group, static_cast<std::uint32_t>(pass.group));
    }
  }
}

/// Counts a pass' turns.
void turns_are_next(const std::vector<DeviceTurn>& turns, const std::vector<std::uint32_t>& devices,
                    std::map<std::uint32_t, std::vector<DeviceTurn>>& taken) {
  ASSERT_EQ(turns.size(), devices.size());
  for (std::size_t at = 0; at < turns.size(); ++at) {
    EXPECT_EQ(turns[at].device, devices[at]);
    EXPECT_EQ(turns[at].place, taken[devices[at]].size());
    taken[devices[at]].push_back(turns[at]);
  }
}

class StepPlannerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StepPlannerTest, lanes_of_a_device_take_turns_in_the_order_of_the_schedule) {  // ST-7
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Generator random(seed);
    const SectionGraph graph = roomy(testing::random_graph(random, {}, 4));
    const testing::SharedDevices shared = testing::shared_devices(random, graph, 3);
    StepPlannerOptions options = options_of(graph, GetParam(), {2, 13, 13});
    options.devices = shared.devices;
    options.turns = shared.turns;
    const std::vector<SampleRef> samples = random_samples(random, 7);
    const auto planned = StepPlanner(std::move(options)).plan(StepId(1), Pass::train, samples, 1).value_or_throw();
    std::map<std::pair<SectionId, std::uint32_t>, const MicroBatchPlan*> batches;
    for (const MicroBatchPlan& batch : planned.plan.micro_batches) batches[{batch.section, batch.index}] = &batch;
    std::map<std::uint32_t, std::vector<DeviceTurn>> taken;
    for (const PlannedPass& pass : planned.schedule.passes) {
      const MicroBatchPlan& batch = *batches.at(planned.tasks[pass.task]);
      turns_are_next(pass.backward ? batch.backward_turns : batch.forward_turns,
                     shared.turns[batch.section.value()][batch.replica.value()], taken);
    }
    for (const auto& [device, turns] : taken) {
      for (std::size_t at = 0; at < turns.size(); ++at) EXPECT_EQ(turns[at].last, at + 1 == turns.size());
    }
  }
}

void check_random_runs(std::string_view policy, const testing::GraphLimits& graphs, std::uint64_t runs) {
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const SectionGraph graph = roomy(testing::random_graph(random, graphs, draw(random, 1, 8)));
    StepPlanner planner(options_of(graph, policy, {draw(random, 1, 3), 13, 13}));
    Counters counters;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const Pass pass = random() % 3 == 0 ? Pass::evaluate : Pass::train;
      const std::vector<SampleRef> samples = random_samples(random, draw(random, 1, 13), graphs.sources);
      const Result<PlannedStep> planned = planner.plan(StepId(step), pass, samples, 0.25);
      ASSERT_TRUE(planned) << planned.error().message;
      PlanCheck(graph, samples).check(planned->plan, counters);
      passes_are_those_of_the_schedule(*planned);
      if (::testing::Test::HasFatalFailure()) return;
      const Status legal = check_schedule(planned->workload, planned->schedule);
      EXPECT_TRUE(legal) << legal.error().message;
      EXPECT_GE(planned->schedule.makespan_ms, lower_bound_ms(planned->workload) * (1 - 1e-9));
    }
  }
}

TEST_P(StepPlannerTest, every_row_reaches_its_place_once_in_every_step_of_a_random_run) {  // ST-1, ST-2, ST-3
  check_random_runs(GetParam(), {}, 150);
}

TEST_P(StepPlannerTest, every_row_reaches_its_place_once_on_every_rank_of_random_layouts) {  // ST-2, ST-3, RE-1
  testing::GraphLimits graphs;
  graphs.tensor = 4;
  graphs.context = 4;
  check_random_runs(GetParam(), graphs, 100);
}

TEST_P(StepPlannerTest, every_row_reaches_its_place_once_between_replicas_of_several_contexts) {  // ST-2, ST-3, RE-1
  testing::GraphLimits graphs;
  graphs.tensor = 3;
  graphs.context = 5;
  graphs.mixed = true;
  check_random_runs(GetParam(), graphs, 100);
}

TEST_P(StepPlannerTest, every_row_reaches_its_place_once_where_samples_choose_sections) {  // ST-1, ST-2, ST-3
  testing::GraphLimits graphs;
  graphs.sources = 3;
  check_random_runs(GetParam(), graphs, 100);
  graphs.tensor = graphs.context = 3;
  check_random_runs(GetParam(), graphs, 60);
}

TEST_P(StepPlannerTest, micro_batches_are_the_same_under_every_number_of_replicas) {  // ST-4, MC-2
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const std::vector<SampleRef> samples = random_samples(random, 11);
    Generator first(seed);
    const SectionGraph sharded = roomy(testing::random_graph(first, {}, 4));
    SectionGraph single;
    for (GraphNode node : sharded.nodes()) {
      node.replicas = 1;
      single.add(node);
    }
    for (const GraphEdge& edge : sharded.edges()) {
      single.connect(sharded.node(edge.from).name, edge.from_port, sharded.node(edge.to).name, edge.to_port);
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
    EXPECT_EQ(cut_of(sharded), cut_of(single));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, StepPlannerTest, ::testing::Values("arrival", "bulk_synchronous", "wavefront"));

struct Side {
  std::int64_t replicas = 1;
  std::int64_t micro_batch = 1;
  Layout layout = {};
  Sharding sharding = Sharding::rank_rows;
};

struct NamedEdge {
  std::string name;
  Side from;
  Side to;
};

void PrintTo(const NamedEdge& edge, std::ostream* out) {
  *out << edge.name;
}

SectionGraph graph_of(const NamedEdge& edge) {
  const auto node_of = [](std::string name, const Side& side) {
    GraphNode node;
    node.name = std::move(name);
    node.replicas = side.replicas;
    node.micro_batch = side.micro_batch;
    node.layout = side.layout;
    return node;
  };
  SectionGraph graph;
  GraphNode from = node_of("from", edge.from);
  from.ports.outputs.push_back({"out", DType::f32, 1, true, false, Axis::tokens, edge.from.sharding});
  GraphNode to = node_of("to", edge.to);
  to.ports.inputs.push_back({"in", DType::f32, 1, true, false, Axis::tokens, edge.to.sharding});
  graph.add(std::move(from));
  graph.add(std::move(to));
  graph.connect("from", "out", "to", "in");
  return roomy(graph);
}

class NamedEdgeTest : public ::testing::TestWithParam<NamedEdge> {};

TEST_P(NamedEdgeTest, values_and_gradients_reach_every_rank_of_every_replica) {  // ST-2, ST-3
  const SectionGraph graph = graph_of(GetParam());
  StepPlanner planner(options_of(graph, "arrival", {2, 24, 0}));
  Counters counters;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Generator random(step);
    const std::vector<SampleRef> samples = random_samples(random, 24);
    const Result<PlannedStep> planned = planner.plan(StepId(step), Pass::train, samples, 1);
    ASSERT_TRUE(planned) << planned.error().message;
    PlanCheck(graph, samples).check(planned->plan, counters);
    using Place = std::tuple<SectionId, ReplicaIndex, LayoutRank>;
    std::set<Place> senders;
    std::set<Place> receivers;
    for (const MicroBatchPlan& batch : planned->plan.micro_batches) {
      for (const PieceOut& piece : batch.pieces) {
        senders.emplace(batch.section, batch.replica, piece.source_rank);
        receivers.emplace(SectionId(1 - batch.section.value()), piece.receiver, piece.target_rank);
      }
    }
    const auto all = static_cast<std::size_t>(GetParam().from.replicas * GetParam().from.layout.ranks() +
                                              GetParam().to.replicas * GetParam().to.layout.ranks());
    EXPECT_EQ(receivers.size(), all);  // values at the consumer, gradients at the producer
    EXPECT_EQ(senders.size(), all);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Edges, NamedEdgeTest,
    ::testing::Values(NamedEdge{"one_replica_to_four", {1, 2}, {4, 2}},
                      NamedEdge{"three_replicas_to_two", {3, 2}, {2, 3}},
                      NamedEdge{"two_tensor_ranks_to_one", {1, 2, {2, 1}}, {1, 2}},
                      NamedEdge{"two_context_ranks_to_two_tensor_ranks", {1, 2, {1, 2}}, {1, 2, {2, 1}}},
                      NamedEdge{"micro_batches_of_eight_to_three", {2, 8}, {3, 3}},
                      NamedEdge{"all_at_once", {3, 8, {1, 2}}, {2, 3, {4, 2}}},
                      NamedEdge{"logits", {2, 4, {2, 1}, Sharding::vocabulary}, {3, 3, {2, 2}, Sharding::vocabulary}}),
    [](const auto& made) { return made.param.name; });

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
