// Whole jobs under random interleavings of messages and device work: everything arrives where it should, nothing hangs.
#include "tests/actors/simulated_job.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/schedule/flow_bounds.hpp"

namespace maestro::testing {
namespace {

/// The graph with each section's max_in_flight raised to what FB-1 asks for.
SectionGraph with_enough_in_flight(const SectionGraph& graph, std::int64_t global_batch) {
  const std::vector<FlowBounds> bounds = flow_bounds(graph, global_batch, 0);
  SectionGraph raised;
  for (std::size_t index = 0; index < bounds.size(); ++index) {
    GraphNode node = graph.nodes()[index];
    node.max_in_flight = std::max(node.max_in_flight, bounds[index].in_flight);
    raised.add(std::move(node));
  }
  for (const GraphEdge& edge : graph.edges()) {
    raised.connect(graph.node(edge.from).name, edge.from_port, graph.node(edge.to).name, edge.to_port);
  }
  return raised;
}

std::string description(const SectionGraph& graph, const SimulationOptions& options) {
  std::string text = "batch " + std::to_string(options.global_batch) + ", validation " +
                     std::to_string(options.validation_samples) + ", slots " + std::to_string(options.slots) +
                     ", ahead " + std::to_string(options.ahead) + "\n";
  for (const GraphNode& node : graph.nodes()) {
    text += node.name + (node.mode == Mode::forward_backward ? " trained" : " frozen") + ", replicas " +
            std::to_string(node.replicas) + ", micro-batch " + std::to_string(node.micro_batch) + ", in flight " +
            std::to_string(node.max_in_flight) + ", reads";
    for (const Port& port : node.ports.inputs) text += " " + port.name;
    text += "\n";
  }
  return text;
}

void expect_complete(SimulatedJob& job, const SectionGraph& graph, const SimulationOptions& options) {
  ASSERT_TRUE(job.run()) << "hangs: " << job.waiting();
  for (const std::string& problem : job.problems()) ADD_FAILURE() << problem;
  std::map<std::string, std::uint64_t> steps;
  for (const StepRow& row : job.record().steps) {
    ++steps[row.section];
    const double expected = std::sqrt(SimulatedJob::parameters) * job.step_sums().at(row.step.value());
    EXPECT_NEAR(row.metrics.at("grad_norm"), expected, 1e-6 * expected) << row.section << " step " << row.step;
  }
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const GraphNode& node = graph.nodes()[index];
    EXPECT_EQ(job.rows_forwarded(SectionId(index)), job.rows_read()) << node.name;
    EXPECT_EQ(steps[node.name], node.mode == Mode::forward_backward ? options.steps : 0) << node.name;
  }
  EXPECT_EQ(job.record().last_step, options.steps);
}

SimulationOptions random_options(Generator& random) {
  SimulationOptions options;
  options.global_batch = draw(random, 1, 11);
  options.validation_samples = draw(random, 0, 14);
  options.slots = draw(random, 1, 3);
  options.ahead = draw(random, 1, 3);
  options.steps = 3;
  options.devices = draw(random, 1, 4);
  options.global_clip = random() % 2 == 0;
  return options;
}

TEST(SimulatedJob,
     every_row_of_every_random_job_arrives_and_no_job_hangs) {  // ST-2, RL-1..4, CL-1, IR-1, SR-2, FB-1, FB-2
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    Generator random(seed);
    const SimulationOptions options = random_options(random);
    GraphLimits limits;
    limits.max_in_flight = seed % 2 == 0 ? 1 : 3;  // every other job at its bound
    const SectionGraph graph =
        with_enough_in_flight(random_graph(random, limits, options.global_batch), options.global_batch);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFatalFailure()) return;
  }
}

struct ChainPart {
  const char* name;
  Mode mode;
  std::int64_t micro_batch;
  std::int64_t max_in_flight;
};

SectionGraph chain(const std::vector<ChainPart>& parts) {
  SectionGraph graph;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    GraphNode node;
    node.name = parts[at].name;
    node.mode = parts[at].mode;
    node.micro_batch = parts[at].micro_batch;
    node.max_in_flight = parts[at].max_in_flight;
    if (at > 0) node.ports.inputs.push_back({"in", DType::f32, 1, true, false});
    node.ports.outputs.push_back({"out", DType::f32, 1, true, false});
    graph.add(std::move(node));
    if (at > 0) graph.connect(parts[at - 1].name, "out", parts[at].name, "in");
  }
  return graph;
}

TEST(SimulatedJob, small_frozen_micro_batches_feed_a_large_one_because_buffers_follow_the_bound) {  // FB-2
  const SectionGraph graph = chain(
      {{"data", Mode::source, 8, 2}, {"teacher", Mode::forward_only, 1, 1}, {"student", Mode::forward_backward, 8, 1}});
  SimulationOptions options;
  SimulatedJob job(1, graph, options);
  expect_complete(job, graph, options);
  options.bounded = false;
  SimulatedJob starved(1, graph, options);
  EXPECT_FALSE(starved.run()) << "the bound is not needed, so it asks for too much";
}

TEST(SimulatedJob, gradients_of_small_micro_batches_fill_a_large_one_because_buffers_follow_the_bound) {  // FB-2
  const SectionGraph graph = chain({{"data", Mode::source, 8, 2},
                                    {"encoder", Mode::forward_backward, 8, 1},
                                    {"decoder", Mode::forward_backward, 1, 1}});
  SimulationOptions options;
  SimulatedJob job(1, graph, options);
  expect_complete(job, graph, options);
  options.bounded = false;
  SimulatedJob starved(1, graph, options);
  EXPECT_FALSE(starved.run()) << "the bound is not needed, so it asks for too much";
}

TEST(SimulatedJob, a_trained_section_with_one_micro_batch_fewer_in_flight_than_its_bound_would_hang) {  // FB-1
  for (const std::int64_t in_flight : {3, 4}) {
    const SectionGraph graph = chain({{"data", Mode::source, 8, 2},
                                      {"encoder", Mode::forward_backward, 1, in_flight},
                                      {"decoder", Mode::forward_backward, 4, 1}});
    ASSERT_EQ(flow_bounds(graph, 8, 0)[1].in_flight, 4);
    SimulatedJob job(1, graph, SimulationOptions());
    EXPECT_EQ(job.run(), in_flight == 4);
    if (in_flight == 4) continue;
    EXPECT_NE(job.waiting().find("decoder/0 waits for in from section 'encoder'"), std::string::npos) << job.waiting();
  }
}

}  // namespace
}  // namespace maestro::testing
