// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/section_graph.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

void expect_mentions(const std::string& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
}

Port port(std::string name, bool differentiable = false, bool optional = false) {
  return {std::move(name), DType::f32, 8, differentiable, optional};
}

GraphNode node(std::string name, Mode mode, Ports ports) {
  GraphNode made;
  made.name = std::move(name);
  made.mode = mode;
  made.ports = std::move(ports);
  return made;
}

SectionGraph teacher_and_student() {
  SectionGraph graph;
  graph.add(node("data", Mode::source, {{}, {{"tokens", DType::i32, 1}}}));
  graph.add(node("teacher", Mode::forward_only, {{{"tokens", DType::i32, 1}}, {port("hidden")}}));
  graph.add(node("student", Mode::forward_backward,
                 {{{"tokens", DType::i32, 1}, port("hidden"), port("extra", false, true)}, {}}));
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
  expect_mentions(error_of([&] { graph.add(node("student", Mode::source, {})); }), {"two sections", "'student'"});
}

TEST(SectionGraph, an_unknown_section_or_port_is_answered_with_the_nearest_name) {
  SectionGraph graph = teacher_and_student();
  expect_mentions(error_of([&] { graph.connect("techer", "hidden", "student", "hidden"); }), {"'techer'", "'teacher'"});
  expect_mentions(error_of([&] { graph.connect("teacher", "hiden", "student", "hidden"); }),
                  {"section 'teacher' has no output port 'hiden'", "'hidden'"});
  expect_mentions(error_of([&] { graph.connect("teacher", "hidden", "student", "hiddens"); }),
                  {"section 'student' has no input port 'hiddens'", "'hidden'"});
  expect_mentions(error_of([&] { graph.connect("student", "loss", "teacher", "tokens"); }),
                  {"no output port 'loss'", "it has none"});
  EXPECT_TRUE(graph.edges().empty());
}

TEST(SectionGraph, ports_of_other_type_or_width_are_refused_naming_both) {  // SG-1
  SectionGraph graph = teacher_and_student();
  expect_mentions(error_of([&] { graph.connect("data", "tokens", "student", "hidden"); }),
                  {"data.tokens (i32, 1 columns)", "student.hidden (fp32, 8 columns)"});
  graph.add(node("wide", Mode::forward_only, {{}, {{"hidden", DType::f32, 16}}}));
  expect_mentions(error_of([&] { graph.connect("wide", "hidden", "student", "hidden"); }), {"16 columns", "8 columns"});
}

TEST(SectionGraph, ports_by_other_axes_are_refused) {  // SG-1
  SectionGraph graph;
  Port patches = port("out");
  patches.axis = Axis::patches;
  graph.add(node("vision", Mode::forward_only, {{}, {patches}}));
  graph.add(node("llm", Mode::forward_backward, {{port("in")}, {}}));
  expect_mentions(error_of([&] { graph.connect("vision", "out", "llm", "in"); }),
                  {"vision.out (fp32, 8 columns, by patches)", "llm.in (fp32, 8 columns)"});
}

TEST(SectionGraph, ports_sharded_by_vocabulary_need_equal_tensor_degrees) {
  for (const std::int64_t degree : {1, 2, 4}) {
    for (const Sharding in : {Sharding::vocabulary, Sharding::context_rows}) {
      SectionGraph graph;
      Port from = port("out"), to = port("in");
      from.spread = Sharding::vocabulary;
      to.spread = in;
      GraphNode teacher = node("teacher", Mode::forward_only, {{}, {from}});
      teacher.layout.tensor = 2;
      GraphNode student = node("student", Mode::forward_backward, {{to}, {}});
      student.layout.tensor = degree;
      graph.add(teacher);
      graph.add(student);
      const std::string error = error_of([&] { graph.connect("teacher", "out", "student", "in"); });
      if (degree == 2 && in == Sharding::vocabulary) {
        EXPECT_EQ(error, "no error");
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
  graph.add(node("data", Mode::source, {{}, {pixels, port("tokens")}}));
  graph.add(node("vision", Mode::forward_only, {{pixels}, {port("out")}}));
  graph.add(node("llm", Mode::forward_backward, {{port("in")}, {}}));
  graph.connect("data", "pixels", "vision", "pixels");
  graph.connect("vision", "out", "llm", "in");
  expect_mentions(error_of([&] { graph.validate(); }), {"'vision' runs only for samples with images", "'out'"});
}

TEST(SectionGraph, the_axis_of_a_section_is_that_of_its_required_inputs) {
  Port pixels = port("pixels", false, true);
  pixels.axis = Axis::patches;
  EXPECT_EQ(node("llm", Mode::forward_backward, {{pixels, port("tokens")}, {}}).axis(), Axis::tokens);
  pixels.optional = false;
  EXPECT_EQ(node("vision", Mode::forward_backward, {{pixels}, {}}).axis(), Axis::patches);
  EXPECT_EQ(node("data", Mode::source, {{}, {pixels}}).axis(), Axis::tokens);
}

TEST(SectionGraph, the_stages_of_a_section_are_found_by_its_name) {
  SectionGraph graph;
  graph.add(node("teacher", Mode::forward_only, {}));
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    GraphNode part = node("student/" + std::to_string(stage), Mode::forward_backward, {});
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
  expect_mentions(error_of([&] { graph.connect("data", "tokens", "student", "tokens"); }),
                  {"student.tokens", "connected twice"});
}

TEST(SectionGraph, a_required_input_without_connection_is_named) {  // SG-1
  SectionGraph graph = teacher_and_student();
  graph.connect("data", "tokens", "teacher", "tokens");
  graph.connect("data", "tokens", "student", "tokens");
  expect_mentions(error_of([&] { graph.validate(); }), {"student.hidden", "not connected"});
}

TEST(SectionGraph, a_cycle_is_named_without_the_sections_before_it) {  // SG-1
  SectionGraph graph;
  graph.add(node("first", Mode::forward_only, {{}, {port("out")}}));
  graph.add(node("left", Mode::forward_only, {{port("start"), port("in")}, {port("out")}}));
  graph.add(node("right", Mode::forward_only, {{port("in")}, {port("out")}}));
  graph.connect("first", "out", "left", "start");
  graph.connect("left", "out", "right", "in");
  graph.connect("right", "out", "left", "in");
  const std::string error = error_of([&] { graph.validate(); });
  expect_mentions(error, {"cycle", "'left'", "'right'"});
  EXPECT_EQ(error.find("first"), std::string::npos);
}

TEST(SectionGraph, a_gradient_travels_back_only_between_trained_sections_with_differentiable_ports) {
  for (const bool producer_trained : {false, true}) {
    for (const bool consumer_trained : {false, true}) {
      for (const bool out : {false, true}) {
        for (const bool in : {false, true}) {
          const auto mode = [](bool trained) { return trained ? Mode::forward_backward : Mode::forward_only; };
          SectionGraph graph;
          const SectionId trunk = graph.add(node("trunk", mode(producer_trained), {{}, {port("hidden", out)}}));
          const SectionId head = graph.add(node("head", mode(consumer_trained), {{port("hidden", in)}, {}}));
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
