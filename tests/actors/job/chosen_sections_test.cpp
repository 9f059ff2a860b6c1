// SPDX-License-Identifier: Apache-2.0
#include "actors/job/chosen_sections.hpp"

#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {
namespace {

void add(SectionGraph& graph, const char* name, Role role, std::vector<Port> inputs, std::vector<Port> outputs) {
  GraphNode node;
  node.name = name;
  node.role = role;
  node.ports.inputs = std::move(inputs);
  node.ports.outputs = std::move(outputs);
  graph.add(std::move(node));
}

/// Returns a graph with teachers "math" and "code" for "student"; "other" learns from "code" only.
SectionGraph classroom() {
  SectionGraph graph;
  const Port tokens{"tokens", DType::i32, 1, false, false};
  const auto lesson = [](const char* name) {
    Port port{name, DType::f32, 4, false, false};
    port.chosen = true;
    return port;
  };
  add(graph, "data", Role::source, {}, {tokens});
  for (const char* name : {"math", "code"}) {
    add(graph, name, Role::frozen, {tokens}, {{"hidden", DType::f32, 4, false, false}});
    graph.connect("data", "tokens", name, "tokens");
  }
  add(graph, "student", Role::trained, {tokens, lesson("math_hidden"), lesson("code_hidden")}, {});
  add(graph, "other", Role::trained, {tokens, lesson("teacher_hidden")}, {});
  for (const char* name : {"student", "other"}) graph.connect("data", "tokens", name, "tokens");
  graph.connect("math", "hidden", "student", "math_hidden");
  graph.connect("code", "hidden", "student", "code_hidden");
  graph.connect("code", "hidden", "other", "teacher_hidden");
  return graph;
}

SourceSet sources_of(const SectionGraph& graph, const std::string& name) {
  return graph.node(*graph.find(name)).sources;
}

std::string refusal(const std::vector<SourceTeachers>& sources) {
  SectionGraph graph = classroom();
  const JobDocument job = JobDocument::parse("[data.mix.wiki]\nteachers = []\n", "job.toml");
  try {
    choose_sections(graph, sources, job.root());
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChosenSections, run_for_the_sources_that_name_them_and_for_those_that_name_none) {
  SectionGraph graph = classroom();
  const JobDocument job = JobDocument::parse("", "job.toml");
  choose_sections(graph, {{"a", {"code"}}, {"b", {}}, {"c", {"code", "math"}}}, job.root());
  EXPECT_EQ(sources_of(graph, "math"), SourceSet({false, true, true}));
  EXPECT_TRUE(sources_of(graph, "code").all());
  EXPECT_TRUE(sources_of(graph, "student").all());
  EXPECT_NO_THROW(graph.validate());
}

TEST(ChosenSections, are_all_sections_where_the_data_are_no_mixture) {
  SectionGraph graph = classroom();
  choose_sections(graph, {}, JobDocument::parse("", "job.toml").root());
  EXPECT_TRUE(sources_of(graph, "math").all());
}

TEST(ChosenSections, are_named_with_the_nearest_teacher_where_a_source_names_another) {
  EXPECT_EQ(refusal({{"wiki", {"code", "mth"}}}),
            "job.toml:2: data.mix.wiki.teachers: \"mth\" teaches no section of this job; did you mean 'math'?");
  EXPECT_EQ(refusal({{"wiki", {"student"}}}),
            "job.toml:2: data.mix.wiki.teachers: \"student\" teaches no section of this job; its teachers: code, math");
}

TEST(ChosenSections, leave_no_student_without_a_teacher) {
  EXPECT_EQ(refusal({{"wiki", {"math"}}}),
            "job.toml:2: data.mix.wiki.teachers: names no teacher of [other], which learns from code");
}

TEST(ChosenSections, are_each_named_by_some_source) {
  EXPECT_EQ(refusal({{"wiki", {"code"}}, {"other", {"code"}}}),
            "job.toml: student.teacher: \"math\" teaches no sample: no source of [data.mix] has it in its `teachers`; "
            "add it to a source, or remove it here");
  EXPECT_EQ(refusal({{"wiki", {"code"}}, {"other", {}}}), "no error");
}

}  // namespace
}  // namespace maestro
