#include "runtime/schedule/step_planner.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "runtime/core/result.hpp"
#include "runtime/schedule/order_policy.hpp"
#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;

std::vector<SampleRef> random_samples(Generator& random, std::int64_t count) {
  std::vector<SampleRef> samples;
  for (std::int64_t at = 0; at < count; ++at) samples.push_back({SampleId(random() % 1000), draw(random, 1, 9)});
  return samples;
}

bool same_samples(const std::vector<SampleRef>& a, const std::vector<SampleRef>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SampleRef& x, const SampleRef& y) { return x.id == y.id && x.tokens == y.tokens; });
}

/// Rows of a micro-batch, each by the place of its sample in the batch and its position there.
using Row = std::pair<std::size_t, std::int64_t>;

class PlanCheck {
 public:
  PlanCheck(const SectionGraph& graph, const std::vector<SampleRef>& samples) : graph_(&graph), samples_(&samples) {}

  /// ST-1, ST-2; sequences are checked against the counters of the whole run (ST-3).
  void check(const StepPlan& plan, std::map<std::tuple<EdgeId, bool, ReplicaIndex>, std::uint64_t>& counters) {
    each_section_has_each_sample_once(plan);
    pieces_cover_arrivals(plan);
    sequences_have_no_gaps(plan, counters);
  }

 private:
  void each_section_has_each_sample_once(const StepPlan& plan) {
    std::map<SectionId, std::vector<SampleRef>> seen;
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      EXPECT_EQ(batch.step, plan.step);
      EXPECT_EQ(batch.pass, plan.pass);
      EXPECT_LT(batch.replica.value(), graph_->node(batch.section).replicas);
      EXPECT_LE(static_cast<std::int64_t>(batch.samples.size()), graph_->node(batch.section).micro_batch);
      std::size_t place = seen[batch.section].size();
      for (const SampleRef& sample : batch.samples) {
        for (std::int64_t position = 0; position < sample.tokens; ++position) {
          rows_[&batch].emplace_back(place, position);
        }
        seen[batch.section].push_back(sample);
        ++place;
      }
    }
    EXPECT_EQ(seen.size(), graph_->nodes().size());
    for (const auto& [section, samples] : seen) EXPECT_TRUE(same_samples(samples, *samples_));
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
        auto& counts = written[arrival];
        counts.resize(rows_[receiver].size());
        for (std::int64_t row = 0; row < piece.rows; ++row) {
          const auto from = static_cast<std::size_t>(piece.source_row + row);
          const auto to = static_cast<std::size_t>(piece.target_row + row);
          ASSERT_LT(from, rows_[&sender].size());
          ASSERT_LT(to, counts.size());
          EXPECT_EQ(rows_[&sender][from], rows_[receiver][to]);
          ++counts[to];
        }
      }
    }
    EXPECT_EQ(written.size(), receivers.size());
    for (const auto& [arrival, counts] : written) {
      for (const int count : counts) EXPECT_EQ(count, 1);
    }
  }

  void sequences_have_no_gaps(const StepPlan& plan,
                              std::map<std::tuple<EdgeId, bool, ReplicaIndex>, std::uint64_t>& counters) {
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      std::set<std::pair<EdgeId, bool>> expected;
      for (const EdgeId edge : graph_->inputs(batch.section)) expected.emplace(edge, false);
      for (const EdgeId edge : graph_->outputs(batch.section)) {
        if (graph_->edge(edge).gradient && plan.pass == Pass::train) expected.emplace(edge, true);
      }
      for (const ArrivalPlan& arrival : batch.arrivals) {
        EXPECT_EQ(expected.erase({arrival.edge, arrival.gradient}), 1u);
        const std::uint64_t next = counters[{arrival.edge, arrival.gradient, batch.replica}]++;
        EXPECT_EQ(arrival.sequence, next);
      }
      EXPECT_TRUE(expected.empty());
    }
  }

  const SectionGraph* graph_;
  const std::vector<SampleRef>* samples_;
  std::map<const MicroBatchPlan*, std::vector<Row>> rows_;
};

TEST(StepPlanner, every_row_reaches_its_place_once_in_every_step_of_a_random_run) {  // ST-1, ST-2, ST-3
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const SectionGraph graph = testing::random_graph(random, {}, draw(random, 1, 8));
    StepPlanner planner(graph);
    std::map<std::tuple<EdgeId, bool, ReplicaIndex>, std::uint64_t> counters;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const Pass pass = random() % 3 == 0 ? Pass::evaluate : Pass::train;
      const std::vector<SampleRef> samples = random_samples(random, draw(random, 1, 13));
      const StepPlan plan = planner.plan(StepId(step), pass, samples, 0.25);
      PlanCheck(graph, samples).check(plan, counters);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(StepPlanner, micro_batches_are_the_same_under_every_number_of_replicas) {  // ST-4
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const std::vector<SampleRef> samples = random_samples(random, 11);
    Generator first(seed);
    Generator second(seed);
    const SectionGraph spread = testing::random_graph(first, {}, 4);
    SectionGraph single;
    for (GraphNode node : spread.nodes()) {
      node.replicas = 1;
      single.add(node);
    }
    for (const GraphEdge& edge : spread.edges()) {
      single.connect(spread.node(edge.from).name, edge.from_port, spread.node(edge.to).name, edge.to_port);
    }
    const StepPlan many = StepPlanner(spread).plan(StepId(1), Pass::train, samples, 0.5);
    const StepPlan one = StepPlanner(single).plan(StepId(1), Pass::train, samples, 0.5);
    ASSERT_EQ(many.micro_batches.size(), one.micro_batches.size());
    for (std::size_t at = 0; at < many.micro_batches.size(); ++at) {
      EXPECT_EQ(many.micro_batches[at].section, one.micro_batches[at].section);
      EXPECT_EQ(many.micro_batches[at].index, one.micro_batches[at].index);
      EXPECT_EQ(many.micro_batches[at].loss_scale, 0.5);
      EXPECT_TRUE(same_samples(many.micro_batches[at].samples, one.micro_batches[at].samples));
    }
  }
}

SectionGraph two_sections(Mode mode, std::int64_t replicas) {
  SectionGraph graph;
  GraphNode trained;
  trained.name = "student";
  trained.replicas = 1;
  graph.add(trained);
  GraphNode node;
  node.name = "teacher";
  node.mode = mode;
  node.replicas = replicas;
  graph.add(node);
  return graph;
}

std::map<std::uint32_t, std::int64_t> tokens_by_replica(const StepPlan& plan, SectionId section) {
  std::map<std::uint32_t, std::int64_t> tokens;
  for (const MicroBatchPlan& batch : plan.micro_batches) {
    if (batch.section == section) tokens[batch.replica.value()] += batch.rows();
  }
  return tokens;
}

TEST(StepPlanner, a_forward_only_section_gives_more_to_the_replica_whose_device_does_less) {
  const SectionGraph graph = two_sections(Mode::forward_only, 2);
  StepPlanner planner(graph, {{{0}, {0, 1}}, {1.0, 1.0}});  // the student shares device 0
  const std::vector<SampleRef> samples(8, {SampleId(1), 10});
  for (std::uint64_t step = 1; step <= 3; ++step) {
    auto tokens = tokens_by_replica(planner.plan(StepId(step), Pass::train, samples, 1), SectionId(1));
    EXPECT_EQ(tokens[0], 0);  // the student's 80 tokens of work are as much as all of the teacher's
    EXPECT_EQ(tokens[1], 80);
  }
}

TEST(StepPlanner, forward_only_work_of_uneven_samples_is_balanced_to_within_one_micro_batch) {
  const SectionGraph graph = two_sections(Mode::forward_only, 3);
  StepPlanner planner(graph, {{{3}, {0, 1, 2}}, {1.0, 2.0}});
  Generator random(5);
  const std::vector<SampleRef> samples = random_samples(random, 40);
  auto tokens = tokens_by_replica(planner.plan(StepId(1), Pass::train, samples, 1), SectionId(1));
  ASSERT_EQ(tokens.size(), 3u);
  for (const auto& [a, first] : tokens) {
    for (const auto& [b, second] : tokens) EXPECT_LE(first - second, 9) << a << " and " << b;
  }
}

TEST(StepPlanner, trained_sections_go_round_their_replicas_whatever_their_devices_do) {
  const SectionGraph graph = two_sections(Mode::forward_backward, 2);
  StepPlanner planner(graph, {{{0}, {0, 1}}, {1.0, 1.0}});
  const std::vector<SampleRef> samples(8, {SampleId(1), 10});
  auto tokens = tokens_by_replica(planner.plan(StepId(1), Pass::train, samples, 1), SectionId(1));
  EXPECT_EQ(tokens[0], 40);
  EXPECT_EQ(tokens[1], 40);
}

TEST(OrderPolicy, arrival_keeps_every_sample_in_its_place) {  // OP-1
  Generator random(3);
  const std::vector<SampleRef> samples = random_samples(random, 20);
  const auto policy = make_order_policy("arrival");
  EXPECT_EQ(policy->name(), "arrival");
  EXPECT_TRUE(same_samples(policy->order(samples), samples));
}

TEST(OrderPolicy, an_unknown_name_is_answered_with_the_known_ones) {
  try {
    (void)make_order_policy("arival");
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(), "no order policy is named 'arival'; there is 'arrival'");
  }
}

}  // namespace
}  // namespace maestro
