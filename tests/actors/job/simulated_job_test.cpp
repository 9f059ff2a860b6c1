// SPDX-License-Identifier: Apache-2.0
// Complete jobs with messages and device work in random order: every row arrives at its receiver, and no job hangs.
#include "tests/actors/job/simulated_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/micro_batch_cut.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro::testing {
namespace {

/// Returns the graph with each section's max_in_flight raised to the bounds of FB-1 and MC-4.
SectionGraph with_enough_in_flight(SectionGraph graph, std::int64_t global_batch) {
  const std::vector<std::int64_t> bounds = in_flight_bounds(graph, global_batch);
  for (std::uint32_t index = 0; index < bounds.size(); ++index) {
    const SectionId section(index);
    std::int64_t needed = std::max(bounds[index], most_needed_at_once(graph, section, {SampleId(0), 4, 3, 3, 1}));
    // With two consumers, a section that follows the first may need every sample of the batch.
    if (graph.node(section).follows_consumer() && graph.outputs(section).size() > 1) needed = global_batch;
    graph.set_max_in_flight(section, std::max(graph.node(section).max_in_flight, needed));
  }
  return graph;
}

std::string description(const SectionGraph& graph, const SimulationOptions& options) {
  std::string text = "batch " + std::to_string(options.global_batch) + ", validation " +
                     std::to_string(options.validation_samples) + ", slots " + std::to_string(options.slots) +
                     ", ahead " + std::to_string(options.ahead) + ", " + options.policy + "\n";
  for (const GraphNode& node : graph.nodes()) {
    text += node.name + (node.trained() ? " trained" : " frozen") + (node.follows_consumer() ? " by patches" : "") +
            (node.runs_backward() ? ", backward" : "") + ", replicas " + std::to_string(node.replicas) + " of " +
            std::to_string(node.layout.context) + " x " + std::to_string(node.layout.tensor) + " ranks, micro-batch " +
            std::to_string(node.micro_batch) + ", in flight " + std::to_string(node.max_in_flight) + ", reads";
    for (const Port& port : node.ports.inputs) text += " " + port.name;
    text += "\n";
  }
  return text;
}

/// Checks that replicas have equal parameters: all elements receive equal gradients, whichever replica stepped them; no
/// gradient is carried over to the next step (PA-4).
void expect_equal_parameters(SimulatedJob& job, const SectionGraph& graph) {
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    if (!graph.nodes()[index].trained()) continue;
    const auto& runners = job.runners(SectionId(index));
    const auto held = static_cast<std::size_t>(SimulatedJob::parameters);
    const float first = runners.front()->section().parameters().values().front();
    const bool stepped = !job.step_sums(graph.nodes()[index].axis()).empty();
    EXPECT_EQ(first != 0, stepped) << graph.nodes()[index].name;
    for (const auto& runner : runners) {
      const Parameters& parameters = runner->section().parameters();
      EXPECT_EQ(parameters.optimizer_sharded(), job.optimizer_sharded(SectionId(index)));
      for (const float value : parameters.values().first(held)) ASSERT_EQ(value, first) << graph.nodes()[index].name;
      for (const float gradient : parameters.gradients()) ASSERT_EQ(gradient, 0) << graph.nodes()[index].name;
    }
  }
}

void expect_complete(SimulatedJob& job, const SectionGraph& graph, const SimulationOptions& options) {
  ASSERT_TRUE(job.run()) << "hangs: " << job.waiting();
  for (const std::string& problem : job.problems()) ADD_FAILURE() << problem;
  std::map<std::string, std::uint64_t> steps;
  for (const StepRow& row : job.record().steps.kept()) {
    if (row.metrics.count("grad_norm") == 0) continue;  // a frozen section that gradients pass through
    ++steps[row.section];
    const Axis axis = graph.node(*graph.find(row.section)).axis();
    const double expected = std::sqrt(SimulatedJob::parameters) * job.step_sums(axis).at(row.step.value());
    EXPECT_NEAR(row.metrics.at("grad_norm"), expected, 1e-6 * expected) << row.section << " step " << row.step;
  }
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const GraphNode& node = graph.nodes()[index];
    if (options.moves > 0 && graph.repeatable()[index]) {
      EXPECT_GE(job.rows_forwarded(SectionId(index)), job.rows_read(node.axis())) << node.name;  // some rows pass again
    } else {
      EXPECT_EQ(job.rows_forwarded(SectionId(index)), job.rows_read(node.axis())) << node.name;
    }
    if (!node.trained()) continue;
    // A section does not step its optimizer if no sample of the step activates it.
    EXPECT_EQ(steps[node.name], job.step_sums(node.axis()).size()) << node.name;
  }
  EXPECT_EQ(job.record().last_step, options.steps);
  expect_equal_parameters(job, graph);
}

/// Checks that the last checkpoint has the moments of all elements, whichever replica kept them.
void expect_whole_moments(SimulatedJob& job, const SectionGraph& graph) {
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const GraphNode& node = graph.nodes()[index];
    if (!node.trained()) continue;
    const auto stored = read_section(job.record().checkpoint, node.name);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    ASSERT_EQ(stored->state.optimizer.size(), 2u);
    for (const NamedTensor& moment : stored->state.optimizer) {
      const std::span<const float> values = moment.tensor.span<float>();
      ASSERT_EQ(values.size(), static_cast<std::size_t>(SimulatedJob::parameters));
      EXPECT_EQ(values[0] != 0, !job.step_sums(node.axis()).empty());
      for (const float value : values) ASSERT_EQ(value, values[0]) << node.name << ", " << moment.name;
    }
  }
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
  constexpr const char* policies[] = {"arrival", "bulk_synchronous", "wavefront"};
  options.policy = policies[random() % 3];
  options.measure = random() % 2 == 0;
  options.zero = random() % 2 == 0;
  return options;
}

TEST(SimulatedJob,
     every_row_of_every_random_job_arrives_and_no_job_hangs) {  // ST-2, RL-1..4, CL-1, IR-1, RD-2, FB-1, FB-2
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Generator random(seed);
    const SimulationOptions options = random_options(random);
    GraphLimits limits;
    limits.max_in_flight = seed % 2 == 0 ? 1 : 3;  // max_in_flight is minimal in every other job
    const SectionGraph graph =
        with_enough_in_flight(random_graph(random, limits, options.global_batch), options.global_batch);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFatalFailure()) return;
  }
}

TEST(SimulatedJob, every_row_reaches_the_ranks_that_hold_it_whatever_the_layouts) {  // RB-1..4, RE-1..4, RA-1, ST-2
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    Generator random(seed);
    const SimulationOptions options = random_options(random);
    GraphLimits limits;
    limits.tensor = 3;
    limits.context = 3;
    const SectionGraph graph =
        with_enough_in_flight(random_graph(random, limits, options.global_batch), options.global_batch);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFatalFailure()) return;
  }
}

/// Returns a graph whose sections have several ranks for every other seed.
SectionGraph graph_of_many_replicas(std::uint64_t seed, Generator& random, const SimulationOptions& options) {
  GraphLimits limits;
  limits.replicas = 5;  // more replicas than shards: some shards are empty
  limits.tensor = seed % 2 == 0 ? 1 : 2;
  limits.context = limits.tensor;
  return with_enough_in_flight(random_graph(random, limits, options.global_batch), options.global_batch);
}

TEST(SimulatedJob, every_row_arrives_while_repeatable_sections_begin_anew) {  // RB-5, RA-3, CR-5, CC-6
  int moves = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Generator random(seed);
    SimulationOptions options = random_options(random);
    if (options.policy == std::string("bulk_synchronous")) options.policy = "wavefront";
    options.moves = 4;
    const SectionGraph graph = graph_of_many_replicas(seed, random, options);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFailure()) return;
    moves += job.moves();
  }
  EXPECT_GT(moves, 300);
}

TEST(SimulatedJob, replicas_that_share_their_moments_step_alike_and_store_them_whole) {  // HX-1..HX-3, RD-5, PA-4, CR-3
  TempFolder folder;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Generator random(seed);
    SimulationOptions options = random_options(random);
    options.zero = true;
    options.folder = folder.path() / std::to_string(seed);
    options.checkpoint_every = seed % 3;
    const SectionGraph graph = graph_of_many_replicas(seed, random, options);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFatalFailure()) return;
    expect_whole_moments(job, graph);
    if (HasFatalFailure()) return;
  }
}

/// Returns whether the surviving replicas wrote the last checkpoint. Then it must be at the job's last finished step.
bool expect_rescued(SimulatedJob& job, const SectionGraph& graph) {
  if (!job.record().owed)
    return false;  // no checkpoint, or an earlier scheduled one after which replicas may have trained
  const std::filesystem::path newest = job.record().newest;
  const std::uint64_t step = job.record().last_step;
  EXPECT_EQ(std::stoull(newest.filename().string().substr(5)), step);
  const Manifest manifest = load_manifest(newest).value_or_throw();
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const GraphNode& node = graph.nodes()[index];
    if (!node.trained()) continue;
    const auto stored = read_section(newest, node.section_name());
    EXPECT_TRUE(stored) << stored.error().message;
    if (!stored) continue;
    const auto ahead = manifest.ahead.find(node.section_name());
    const std::uint64_t last = ahead == manifest.ahead.end() ? step : ahead->second;
    std::uint64_t updates = 0;
    for (const auto& [at, sum] : job.step_sums(node.axis())) updates += at <= last ? 1 : 0;
    EXPECT_EQ(stored->state.optimizer_step, updates) << node.name;
    const std::span<const float> values = stored->state.parameters.at(0).tensor.span<float>();
    const auto holds = [&](const auto& runner) {
      Parameters& own = runner->section().parameters();
      return static_cast<std::uint64_t>(own.updates()) == updates &&
             std::ranges::equal(values, own.values().first(values.size()));
    };
    EXPECT_TRUE(std::ranges::any_of(job.runners(SectionId(index)), holds)) << node.name;
  }
  return true;
}

TEST(SimulatedJob, state_after_the_last_finished_step_is_written_at_any_moment) {  // RA-4, CR-6
  TempFolder folder;
  int rescued = 0;
  int unfinished = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Generator random(seed);
    SimulationOptions options = random_options(random);
    options.folder = folder.path() / std::to_string(seed);
    options.checkpoint_every = seed % 4;
    options.rescue = true;
    options.measure = false;  // plans by measured times, and so the moments, would differ between runs
    options.zero = false;
    options.steps = 6;
    const SectionGraph graph = graph_of_many_replicas(seed, random, options);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    if (job.run()) continue;
    ++unfinished;
    EXPECT_EQ(job.problems(), std::vector<std::string>());
    if (expect_rescued(job, graph)) ++rescued;
    if (HasFailure()) return;
  }
  RecordProperty("unfinished", unfinished);
  RecordProperty("rescued", rescued);
  EXPECT_GT(unfinished, 100);
  EXPECT_GT(rescued, 15);
}

TEST(SimulatedJob, replicas_on_devices_of_their_own_reduce_in_groups_as_they_do_by_the_host) {  // DG-1, DG-2, WR-1
  TempFolder folder;
  std::set<std::string> exchanges;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Generator random(seed);
    SimulationOptions options = random_options(random);
    options.groups = true;
    options.devices = draw(random, 2, 9);  // too few for some sections; their gradients are reduced by the host
    options.folder = folder.path() / std::to_string(seed);
    options.checkpoint_every = seed % 3;
    const SectionGraph graph = graph_of_many_replicas(seed, random, options);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + description(graph, options));
    SimulatedJob job(seed, graph, options);
    expect_complete(job, graph, options);
    if (HasFatalFailure()) return;
    EXPECT_EQ(job.backend().problems(), std::vector<std::string>());
    exchanges.insert(job.backend().exchanges().begin(), job.backend().exchanges().end());
    expect_whole_moments(job, graph);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(exchanges, (std::set<std::string>{"all_reduce_sum", "gather_shards", "reduce_to_shards"}));
}

struct ChainPart {
  const char* name;
  Role role;
  std::int64_t micro_batch;
  std::int64_t max_in_flight;
};

SectionGraph chain(const std::vector<ChainPart>& parts) {
  SectionGraph graph;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    GraphNode node;
    node.name = parts[at].name;
    node.role = parts[at].role;
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
  const SectionGraph graph =
      chain({{"data", Role::source, 8, 2}, {"teacher", Role::frozen, 1, 1}, {"student", Role::trained, 8, 1}});
  SimulationOptions options;
  SimulatedJob job(1, graph, options);
  expect_complete(job, graph, options);
}

TEST(SimulatedJob, gradients_of_small_micro_batches_fill_a_large_one_because_buffers_follow_the_bound) {  // FB-2
  const SectionGraph graph =
      chain({{"data", Role::source, 8, 2}, {"encoder", Role::trained, 8, 1}, {"decoder", Role::trained, 1, 1}});
  SimulationOptions options;
  SimulatedJob job(1, graph, options);
  expect_complete(job, graph, options);
}

TEST(SimulatedJob, one_micro_batch_fewer_in_flight_than_the_bound_is_an_error_that_says_so_and_no_hang) {  // FB-1
  for (const std::int64_t in_flight : {3, 4}) {
    const SectionGraph graph = chain(
        {{"data", Role::source, 8, 2}, {"encoder", Role::trained, 1, in_flight}, {"decoder", Role::trained, 4, 1}});
    ASSERT_EQ(in_flight_bounds(graph, 8)[1], 4);
    SimulatedJob job(1, graph, SimulationOptions());
    EXPECT_EQ(job.run(), in_flight == 4);
    if (in_flight == 4) continue;
    ASSERT_EQ(job.problems().size(), 1u);
    EXPECT_NE(job.problems()[0].find("planning step 1"), std::string::npos) << job.problems()[0];
    EXPECT_NE(job.problems()[0].find("encoder"), std::string::npos) << job.problems()[0];
    EXPECT_NE(job.problems()[0].find("max_in_flight"), std::string::npos) << job.problems()[0];
  }
}

TEST(SimulatedJob,
     an_exchange_that_fails_is_told_with_section_replica_step_and_peers_and_its_sums_are_not_used) {  // DG-4, RA-2
  SectionGraph graph;
  GraphNode data;
  data.name = "data";
  data.role = Role::source;
  data.ports.outputs.push_back({"out", DType::f32, 1, false, false});
  graph.add(data);
  GraphNode student;
  student.name = "student";
  student.role = Role::trained;
  student.replicas = 2;
  student.ports.inputs.push_back({"in", DType::f32, 1, false, false});
  student.ports.outputs.push_back({"out", DType::f32, 1, true, false});
  graph.add(student);
  graph.connect("data", "out", "student", "in");
  SimulationOptions options;
  options.groups = true;
  SimulatedJob job(1, graph, options);
  job.backend().break_next("the link is down");
  EXPECT_FALSE(job.run());
  EXPECT_THAT(job.problems(),
              ::testing::UnorderedElementsAre("section 'student' replica 0, step 1: exchange of gradients with section "
                                              "'student' replica 1 (process 0): the "
                                              "link is down",
                                              "section 'student' replica 1, step 1: exchange of gradients with section "
                                              "'student' replica 0 (process 0): the "
                                              "link is down"));
  for (const auto& runner : job.runners(SectionId(1))) {
    EXPECT_EQ(runner->section().parameters().updates(), 0);
  }
}

}  // namespace
}  // namespace maestro::testing
