// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/section_graph.hpp"

#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

void expect_mentions(const std::string& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
}

Port port(std::string name, bool differentiable = false, bool optional = false) {
  return {std::move(name), DType::f32, 8, differentiable, optional};
}

GraphNode node(std::string name, Role role, Ports ports) {
  GraphNode made;
  made.name = std::move(name);
  made.role = role;
  made.ports = std::move(ports);
  return made;
}

SectionGraph teacher_and_student() {
  SectionGraph graph;
  graph.add(node("data", Role::source, {{}, {{"tokens", DType::i32, 1}}}));
  graph.add(node("teacher", Role::frozen, {{{"tokens", DType::i32, 1}}, {port("hidden")}}));
  graph.add(
      node("student", Role::trained, {{{"tokens", DType::i32, 1}, port("hidden"), port("extra", false, true)}, {}}));
  return graph;
}

TEST(SectionGraph, a_whole_graph_is_accepted_and_an_optional_input_may_stay_free) {  // SG-1
  SectionGraph graph = teacher_and_student();
  graph.connect("data", "tokens", "teacher", "tokens");
  graph.connect("data", "tokens", "student", "tokens");
  graph.connect("teacher", "hidden", "student", "hidden");
  EXPECT_NO_THROW(graph.validate());
}

TEST(SectionGraph, ids_are_dense_in_order_of_addition) {  // SG-2
  SectionGraph graph = teacher_and_student();
  EXPECT_EQ(graph.find("data"), SectionId(0));
  EXPECT_EQ(graph.find("student"), SectionId(2));
  EXPECT_EQ(graph.find("nobody"), std::nullopt);
  EXPECT_EQ(graph.connect("data", "tokens", "student", "tokens"), EdgeId(0));
  EXPECT_EQ(graph.connect("data", "tokens", "teacher", "tokens"), EdgeId(1));
  EXPECT_EQ(graph.outputs(SectionId(0)), (std::vector<EdgeId>{EdgeId(0), EdgeId(1)}));
  EXPECT_EQ(graph.inputs(SectionId(1)), std::vector<EdgeId>{EdgeId(1)});
  EXPECT_EQ(graph.edge(EdgeId(0)).row_bytes(), 4u);
}

TEST(SectionGraph, a_name_can_be_given_once) {
  SectionGraph graph = teacher_and_student();
  expect_mentions(job_error_of([&] { graph.add(node("student", Role::source, {})); }), {"two sections", "'student'"});
}

TEST(SectionGraph, an_unknown_section_or_port_is_answered_with_the_nearest_name) {
  SectionGraph graph = teacher_and_student();
  expect_mentions(job_error_of([&] { graph.connect("techer", "hidden", "student", "hidden"); }),
                  {"'techer'", "'teacher'"});
  expect_mentions(
      job_error_of([&] { graph.connect("teacher", "hiden", "student", "hidden"); }),
      {"section 'teacher' has no output port 'hiden'", "did you mean 'hidden'? there are hidden (fp32, 8 columns)"});
  expect_mentions(job_error_of([&] { graph.connect("teacher", "hidden", "student", "hiddens"); }),
                  {"section 'student' has no input port 'hiddens'", "'hidden'"});
  expect_mentions(job_error_of([&] { graph.connect("student", "loss", "teacher", "tokens"); }),
                  {"no output port 'loss'", "it has none"});
  expect_mentions(job_error_of([&] { graph.connect("student", "hidden", "teacher", "tokens"); }),
                  {"section 'student' has no output port 'hidden', but an input with this name"});
  EXPECT_TRUE(graph.edges().empty());
}

TEST(SectionGraph, ports_of_other_type_or_width_are_refused_naming_both) {  // SG-1
  SectionGraph graph = teacher_and_student();
  expect_mentions(job_error_of([&] { graph.connect("data", "tokens", "student", "hidden"); }),
                  {"data.tokens (i32, 1 column)", "student.hidden (fp32, 8 columns)"});
  graph.add(node("wide", Role::frozen, {{}, {{"hidden", DType::f32, 16}}}));
  expect_mentions(job_error_of([&] { graph.connect("wide", "hidden", "student", "hidden"); }),
                  {"16 columns", "8 columns"});
}

TEST(SectionGraph, ports_by_other_axes_are_refused) {  // SG-1
  SectionGraph graph;
  Port patches = port("out");
  patches.axis = Axis::patches;
  graph.add(node("vision", Role::frozen, {{}, {patches}}));
  graph.add(node("llm", Role::trained, {{port("in")}, {}}));
  expect_mentions(job_error_of([&] { graph.connect("vision", "out", "llm", "in"); }),
                  {"vision.out (fp32, 8 columns, by patches)", "llm.in (fp32, 8 columns)"});
}

TEST(SectionGraph, ports_sharded_by_vocabulary_need_equal_tensor_degrees) {
  for (const std::int64_t degree : {1, 2, 4}) {
    for (const Sharding in : {Sharding::vocabulary, Sharding::context_rows}) {
      SectionGraph graph;
      Port from = port("out"), to = port("in");
      from.sharding = Sharding::vocabulary;
      to.sharding = in;
      GraphNode teacher = node("teacher", Role::frozen, {{}, {from}});
      teacher.layout.tensor = 2;
      GraphNode student = node("student", Role::trained, {{to}, {}});
      student.layout.tensor = degree;
      graph.add(teacher);
      graph.add(student);
      const std::string error = job_error_of([&] { graph.connect("teacher", "out", "student", "in"); });
      if (degree == 2 && in == Sharding::vocabulary) {
        EXPECT_EQ(error, "(no error)");
      } else {
        expect_mentions(error, {"equal tensor degrees", "teacher.tensor = 2", "student.tensor = "});
      }
    }
  }
}

TEST(SectionGraph, a_section_that_runs_for_images_only_may_not_make_tokens) {  // SG-1
  SectionGraph graph;
  Port pixels = port("pixels");
  pixels.axis = Axis::patches;
  graph.add(node("data", Role::source, {{}, {pixels, port("tokens")}}));
  graph.add(node("vision", Role::frozen, {{pixels}, {port("out")}}));
  graph.add(node("llm", Role::trained, {{port("in")}, {}}));
  graph.connect("data", "pixels", "vision", "pixels");
  graph.connect("vision", "out", "llm", "in");
  expect_mentions(job_error_of([&] { graph.validate(); }), {"'vision' runs only for samples with images", "'out'"});
}

TEST(SectionGraph, a_section_that_runs_for_images_only_may_make_patches) {  // SG-1
  SectionGraph graph;
  Port patches = port("patches");
  patches.axis = Axis::patches;
  graph.add(node("data", Role::source, {{}, {patches}}));
  graph.add(node("vision", Role::frozen, {{patches}, {patches}}));
  graph.add(node("projector", Role::trained, {{patches}, {}}));
  graph.connect("data", "patches", "vision", "patches");
  graph.connect("vision", "patches", "projector", "patches");
  EXPECT_NO_THROW(graph.validate());
}

TEST(SectionGraph, a_section_of_some_sources_may_feed_only_chosen_and_optional_inputs) {  // SG-3
  const auto refusal = [](bool chosen, bool same_sources) {
    SectionGraph graph;
    graph.add(node("data", Role::source, {{}, {{"tokens", DType::i32, 1}}}));
    graph.add(node("teacher", Role::frozen, {{{"tokens", DType::i32, 1}}, {port("hidden")}}));
    Port wanted = port("hidden");
    wanted.chosen = chosen;
    graph.add(node("student", Role::trained, {{wanted, port("extra", false, true)}, {}}));
    graph.connect("data", "tokens", "teacher", "tokens");
    graph.connect("teacher", "hidden", "student", "hidden");
    graph.connect("teacher", "hidden", "student", "extra");
    graph.set_sources(SectionId(1), SourceSet({true, false}));
    if (same_sources) graph.set_sources(SectionId(2), SourceSet({true, false}));
    return job_error_of([&] { graph.validate(); });
  };
  expect_mentions(refusal(false, false), {"section 'teacher' runs for the samples of some sources only",
                                          "student.hidden", "needs rows of every sample"});
  EXPECT_EQ(refusal(true, false), "(no error)");
  EXPECT_EQ(refusal(false, true), "(no error)") << "as between stages of a section";
}

TEST(SectionGraph, a_section_of_some_sources_returns_no_gradient_to_a_section_of_all) {  // SG-3
  SectionGraph graph;
  graph.add(node("data", Role::source, {{}, {{"tokens", DType::i32, 1}}}));
  graph.add(node("trunk", Role::trained, {{{"tokens", DType::i32, 1}}, {port("out", true)}}));
  graph.add(node("head", Role::trained, {{port("in", true)}, {}}));
  graph.connect("data", "tokens", "trunk", "tokens");
  graph.connect("trunk", "out", "head", "in");
  graph.set_sources(SectionId(2), SourceSet({true, false}));
  expect_mentions(job_error_of([&] { graph.validate(); }),
                  {"section 'head' runs for the samples of some sources only, so 'trunk' would get no gradient"});
  graph.set_sources(SectionId(1), SourceSet({true, false}));
  EXPECT_NO_THROW(graph.validate());
}

TEST(SectionGraph, sources_of_a_section_are_those_of_its_outputs_and_make_it_follow_its_consumer) {
  SectionGraph graph = teacher_and_student();
  const EdgeId in = graph.connect("data", "tokens", "teacher", "tokens");
  const EdgeId out = graph.connect("teacher", "hidden", "student", "hidden");
  EXPECT_FALSE(graph.node(SectionId(1)).follows_consumer());
  graph.set_sources(SectionId(1), SourceSet({false, true}));
  EXPECT_TRUE(graph.node(SectionId(1)).follows_consumer());
  EXPECT_TRUE(graph.edge(in).sources.all());
  EXPECT_FALSE(graph.edge(out).sources.has(0));
  EXPECT_TRUE(graph.edge(out).sources.has(1));
  EXPECT_TRUE(SourceSet({true, true}).all());
}

TEST(SectionGraph, the_axis_of_a_section_is_that_of_its_required_inputs) {
  Port pixels = port("pixels", false, true);
  pixels.axis = Axis::patches;
  EXPECT_EQ(node("llm", Role::trained, {{pixels, port("tokens")}, {}}).axis(), Axis::tokens);
  pixels.optional = false;
  EXPECT_EQ(node("vision", Role::trained, {{pixels}, {}}).axis(), Axis::patches);
  EXPECT_EQ(node("data", Role::source, {{}, {pixels}}).axis(), Axis::tokens);
}

TEST(SectionGraph, the_stages_of_a_section_are_found_by_its_name) {
  SectionGraph graph;
  graph.add(node("teacher", Role::frozen, {}));
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    GraphNode part = node("student/" + std::to_string(stage), Role::trained, {});
    part.section = "student";
    part.stage = stage;
    part.stages = 2;
    graph.add(part);
  }
  EXPECT_EQ(graph.stages_of("student"), (std::vector<SectionId>{SectionId(1), SectionId(2)}));
  EXPECT_EQ(graph.stages_of("teacher"), std::vector<SectionId>{SectionId(0)});
  EXPECT_TRUE(graph.stages_of("student/0").empty());
}

TEST(SectionGraph, an_input_takes_one_connection) {  // SG-1
  SectionGraph graph = teacher_and_student();
  graph.connect("data", "tokens", "student", "tokens");
  expect_mentions(job_error_of([&] { graph.connect("data", "tokens", "student", "tokens"); }),
                  {"student.tokens", "connected twice"});
}

TEST(SectionGraph, a_required_input_without_connection_is_named) {  // SG-1
  SectionGraph graph = teacher_and_student();
  graph.connect("data", "tokens", "teacher", "tokens");
  graph.connect("data", "tokens", "student", "tokens");
  expect_mentions(job_error_of([&] { graph.validate(); }), {"student.hidden", "not connected"});
}

TEST(SectionGraph, a_cycle_is_named_without_the_sections_before_it) {  // SG-1
  SectionGraph graph;
  graph.add(node("first", Role::frozen, {{}, {port("out")}}));
  graph.add(node("left", Role::frozen, {{port("start"), port("in")}, {port("out")}}));
  graph.add(node("right", Role::frozen, {{port("in")}, {port("out")}}));
  graph.connect("first", "out", "left", "start");
  graph.connect("left", "out", "right", "in");
  graph.connect("right", "out", "left", "in");
  const std::string error = job_error_of([&] { graph.validate(); });
  expect_mentions(error, {"cycle", "'left'", "'right'"});
  EXPECT_EQ(error.find("first"), std::string::npos);
}

TEST(SectionGraph, a_register_leads_from_a_trained_section_to_a_generator) {  // SG-4
  SectionGraph graph = teacher_and_student();
  graph.connect("data", "tokens", "teacher", "tokens");
  graph.connect("data", "tokens", "student", "tokens");
  graph.connect("teacher", "hidden", "student", "hidden");
  const SectionId generator = graph.add(node("generator", Role::generator, {}));
  const SectionId teacher = *graph.find("teacher"), student = *graph.find("student");
  EXPECT_FALSE(graph.publishes(student));
  graph.connect_weights(student, generator);
  graph.validate();
  EXPECT_TRUE(graph.publishes(student));
  EXPECT_FALSE(graph.node(generator).plays_in_steps());
  EXPECT_FALSE(graph.node(*graph.find("data")).plays_in_steps());
  EXPECT_TRUE(graph.node(teacher).plays_in_steps());
  const auto refusal = [&](SectionId from, SectionId to) {
    return job_error_of([&] { graph.connect_weights(from, to); });
  };
  expect_mentions(refusal(student, generator), {"already takes the weights of 'student'"});
  expect_mentions(refusal(teacher, generator), {"'teacher' is not trained"});
  expect_mentions(refusal(student, teacher), {"only a section of type generator takes weights"});
}

TEST(SectionGraph, a_role_decides_passes_and_gradients) {
  const auto in_role = [](Role role) { return node("section", role, {}); };
  for (const Role role : {Role::source, Role::frozen, Role::passing, Role::trained}) {
    EXPECT_EQ(in_role(role).trained(), role == Role::trained);
    EXPECT_EQ(in_role(role).frozen(), role == Role::frozen || role == Role::passing);
    EXPECT_EQ(in_role(role).runs_backward(), role == Role::passing || role == Role::trained);
  }
  EXPECT_EQ(mode_name(Role::source), "source");
  EXPECT_EQ(mode_name(Role::frozen), "forward_only");
  EXPECT_EQ(mode_name(Role::passing), "forward_backward");
  EXPECT_EQ(mode_name(Role::trained), "forward_backward");
  SectionGraph graph;
  graph.add(node("encoder", Role::trained, {{}, {port("out", true)}}));
  graph.add(node("adapter", Role::passing, {{port("in", true)}, {port("out", true)}}));
  graph.add(node("decoder", Role::trained, {{port("in", true)}, {}}));
  EXPECT_TRUE(graph.edge(graph.connect("encoder", "out", "adapter", "in")).gradient);
  EXPECT_TRUE(graph.edge(graph.connect("adapter", "out", "decoder", "in")).gradient);
}

TEST(SectionGraph, a_channel_has_the_ends_of_its_edge_and_its_gradient_has_them_the_other_way_round) {
  Port out = port("hidden", true);
  Port in = port("teacher", true);
  out.sharding = Sharding::rank_rows;
  in.sharding = Sharding::replicated;
  SectionGraph graph;
  const SectionId data = graph.add(node("data", Role::source, {{}, {port("tokens")}}));
  const SectionId teacher = graph.add(node("teacher", Role::trained, {{port("tokens")}, {out}}));
  const SectionId student = graph.add(node("student", Role::trained, {{port("tokens"), in}, {}}));
  const Channel tokens{graph.connect("data", "tokens", "teacher", "tokens")};
  const Channel values{graph.connect("teacher", "hidden", "student", "teacher")};
  const Channel copied{graph.connect("data", "tokens", "student", "tokens")};
  const Channel gradients = values.reversed();
  EXPECT_EQ(gradients, (Channel{values.edge, Direction::gradient}));
  EXPECT_EQ(gradients.reversed(), values);
  for (const Channel channel : {values, gradients}) {
    const bool forward = channel == values;
    EXPECT_EQ(graph.sender(channel), forward ? teacher : student);
    EXPECT_EQ(graph.receiver(channel), forward ? student : teacher);
    EXPECT_EQ(graph.sender_port(channel), forward ? "hidden" : "teacher");
    EXPECT_EQ(graph.receiver_port(channel), forward ? "teacher" : "hidden");
    EXPECT_EQ(graph.sender_sharding(channel), forward ? Sharding::rank_rows : Sharding::replicated);
    EXPECT_EQ(graph.receiver_sharding(channel), forward ? Sharding::replicated : Sharding::rank_rows);
  }
  EXPECT_EQ(graph.name_of(values), "teacher.hidden -> student.teacher");
  EXPECT_EQ(graph.name_of(gradients), "gradient of student.teacher -> teacher.hidden");

  using Channels = std::vector<Channel>;
  EXPECT_EQ(graph.channels(), (Channels{tokens, values, copied, gradients}));
  EXPECT_EQ(graph.received(data), Channels());
  EXPECT_EQ(graph.received(teacher), (Channels{tokens, gradients}));
  EXPECT_EQ(graph.received(student), (Channels{values, copied}));
  EXPECT_EQ(graph.sent(data), (Channels{tokens, copied}));
  EXPECT_EQ(graph.sent(teacher), Channels{values});
  EXPECT_EQ(graph.sent(student), Channels{gradients});
}

TEST(SectionGraph, a_gradient_travels_back_only_between_trained_sections_with_differentiable_ports) {
  for (const bool producer_trained : {false, true}) {
    for (const bool consumer_trained : {false, true}) {
      for (const bool out : {false, true}) {
        for (const bool in : {false, true}) {
          const auto role = [](bool trained) { return trained ? Role::trained : Role::frozen; };
          SectionGraph graph;
          const SectionId trunk = graph.add(node("trunk", role(producer_trained), {{}, {port("hidden", out)}}));
          const SectionId head = graph.add(node("head", role(consumer_trained), {{port("hidden", in)}, {}}));
          const EdgeId edge = graph.connect("trunk", "hidden", "head", "hidden");
          const bool wanted = producer_trained && consumer_trained && out && in;
          EXPECT_EQ(graph.edge(edge).gradient, wanted);
          EXPECT_EQ(graph.awaits_gradient(trunk), wanted);
          EXPECT_FALSE(graph.awaits_gradient(head));
        }
      }
    }
  }
}

}  // namespace
}  // namespace maestro
