// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/workload_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace maestro {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Returns the example in docs/workloads.md.
json example() {
  return json::parse(R"({
    "sections": [{"name": "vision", "replicas": 2, "mode": "forward_backward", "max_in_flight": 4},
                 {"name": "llm", "replicas": 4, "mode": "forward_backward", "max_in_flight": 1}],
    "edges":    [{"from": "vision", "to": "llm", "slots": 4, "transfer_ms": 0.2}],
    "samples":  [{"id": 0, "forward_ms": {"vision": 3.0, "llm": 10.0}, "backward_ms": {"vision": 6.0, "llm": 20.0}},
                 {"id": 1, "forward_ms": {"llm": 8.0}, "backward_ms": {"llm": 16.0}}]})");
}

std::string refusal(const std::string& text) {
  try {
    parse_workload(text, "w.json");
  } catch (const JobError& problem) {
    EXPECT_EQ(std::string(problem.what()).find('\n'), std::string::npos);
    return problem.what();
  }
  return "accepted";
}

/// Returns the error after a change to the example: `value` at `pointer`.
std::string refusal_with(const std::string& pointer, const json& value) {
  json changed = example();
  changed[json::json_pointer(pointer)] = value;
  return refusal(changed.dump());
}

std::string refusal_without(const std::string& pointer) {
  json changed = example();
  const json::json_pointer place(pointer);
  changed[place.parent_pointer()].erase(place.back());
  return refusal(changed.dump());
}

TEST(WorkloadFile, every_sample_becomes_one_task_per_section_that_it_activates) {
  const Workload workload = parse_workload(example().dump(), "w.json");
  ASSERT_EQ(workload.sections.size(), 2u);
  EXPECT_EQ(workload.sections[0].name, "vision");
  EXPECT_EQ(workload.sections[0].replicas, 2);
  EXPECT_EQ(workload.sections[0].max_in_flight, 4);
  EXPECT_TRUE(workload.sections[0].has_backward);
  ASSERT_EQ(workload.edges.size(), 1u);
  EXPECT_EQ(workload.edges[0].slots, 4);
  EXPECT_DOUBLE_EQ(workload.edges[0].transfer_ms, 0.2);
  ASSERT_EQ(workload.tasks.size(), 3u);
  EXPECT_EQ(workload.tasks[1].section, 1u);
  EXPECT_DOUBLE_EQ(workload.tasks[1].backward_ms, 20);
  ASSERT_EQ(workload.tasks[1].inputs.size(), 1u);
  EXPECT_EQ(workload.tasks[1].inputs[0].task, 0u);
  EXPECT_EQ(workload.tasks[2].sample, 1);
  EXPECT_TRUE(workload.tasks[2].inputs.empty());  // without an image it waits for none
}

TEST(WorkloadFile, sections_may_stand_in_any_order) {
  json turned = example();
  std::swap(turned["sections"][0], turned["sections"][1]);
  const Workload workload = parse_workload(turned.dump(), "w.json");
  EXPECT_EQ(workload.sections[0].name, "vision");
  EXPECT_EQ(workload.sections[1].name, "llm");
  EXPECT_EQ(workload.edges[0].from, 0u);
  EXPECT_EQ(workload.edges[0].to, 1u);
}

TEST(WorkloadFile, bounds_that_are_not_given_are_no_limits) {
  json open = example();
  open["sections"][0].erase("max_in_flight");
  open["edges"][0].erase("slots");
  open["edges"][0].erase("transfer_ms");
  const Workload workload = parse_workload(open.dump(), "w.json");
  EXPECT_EQ(workload.sections[0].max_in_flight, no_limit);
  EXPECT_EQ(workload.edges[0].slots, no_limit);
  EXPECT_EQ(workload.edges[0].transfer_ms, 0);
}

TEST(WorkloadFile, lanes_may_share_devices) {
  json shared = example();
  shared["sections"][0]["devices"] = {0, 1};
  shared["sections"][1]["devices"] = {0, 1, 2, 3};
  EXPECT_EQ(parse_workload(shared.dump(), "w.json").sections[1].devices,
            (std::vector<std::vector<int>>{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(refusal_with("/sections/0/devices", {0}),
            "w.json: sections[0].devices: one device, or list of devices, per replica: 1 for 2 replicas");
  EXPECT_THAT(refusal_with("/sections/0/devices", {0, -1}),
              HasSubstr("sections[0].devices[1]: expected a whole number"));
}

TEST(WorkloadFile, a_lane_may_take_several_devices) {
  json wide = example();
  wide["sections"][0]["devices"] = json::parse("[[0, 1], 2]");
  EXPECT_EQ(parse_workload(wide.dump(), "w.json").sections[0].devices, (std::vector<std::vector<int>>{{0, 1}, {2}}));
  EXPECT_EQ(refusal_with("/sections/0/devices", json::parse("[[3, 4, 3], 2]")),
            "w.json: sections[0].devices[0][2]: device 3 is in the list already");
  EXPECT_EQ(refusal_with("/sections/0/devices", json::parse("[[], 2]")),
            "w.json: sections[0].devices[0]: a replica needs a device");
  EXPECT_THAT(refusal_with("/sections/0/devices", json::parse("[[0, \"1\"], 2]")),
              HasSubstr("sections[0].devices[0][1]: expected a whole number"));
}

TEST(WorkloadFile, lanes_may_have_speeds_relative_to_the_fastest) {
  json unequal = example();
  unequal["sections"][0]["speeds"] = {1, 0.5};
  const WorkloadSection section = parse_workload(unequal.dump(), "w.json").sections[0];
  EXPECT_EQ(section.speeds, (std::vector{1.0, 0.5}));
  EXPECT_EQ(section.speed(1), 0.5);
  unequal["sections"][0]["speeds"] = {1, 1};
  EXPECT_TRUE(parse_workload(unequal.dump(), "w.json").sections[0].speeds.empty());
  EXPECT_EQ(refusal_with("/sections/0/speeds", {1}),
            "w.json: sections[0].speeds: one speed per replica: 1 for 2 replicas");
  EXPECT_EQ(refusal_with("/sections/0/speeds", {0.5, 0.25}),
            "w.json: sections[0].speeds: times are those on the fastest replicas, so the highest speed must be 1");
  EXPECT_THAT(refusal_with("/sections/0/speeds", {1, 0}),
              HasSubstr("sections[0].speeds[1]: expected a number from 0.001 to 1"));
}

TEST(WorkloadFile, what_is_not_json_is_refused_with_its_line) {
  EXPECT_THAT(refusal("{\n  \"sections\": [,]}"),
              HasSubstr("w.json is not valid JSON: parse error at line 2, column 16"));
  EXPECT_THAT(refusal(""), HasSubstr("w.json is not valid JSON"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("w.json: expected an object, got [1]"));
}

TEST(WorkloadFile, times_that_are_no_numbers_are_refused) {
  const std::string text = example().dump();
  const auto with = [&](const std::string& word) { return std::string(text).replace(text.find("10.0"), 4, word); };
  for (const std::string word : {"NaN", "Infinity"}) {
    EXPECT_THAT(refusal(with(word)), HasSubstr("w.json is not valid JSON")) << word;
  }
  EXPECT_THAT(refusal(with("1e999")),
              testing::MatchesRegex("w.json: samples\\[0\\].forward_ms.[a-z]+: the number 1e999 at byte [0-9]+ .*"));
  EXPECT_EQ(refusal_with("/samples/1/forward_ms/llm", "8"),
            "w.json: samples[1].forward_ms.llm: expected a time from 0 to 1e9 milliseconds, got \"8\"");
  EXPECT_THAT(refusal_with("/samples/1/forward_ms/llm", nullptr), HasSubstr("got null"));
  EXPECT_EQ(refusal_with("/samples/1/backward_ms/llm", -0.5),
            "w.json: samples[1].backward_ms.llm: expected a time from 0 to 1e9 milliseconds, got -0.5");
  EXPECT_THAT(refusal_with("/edges/0/transfer_ms", -1), HasSubstr("edges[0].transfer_ms: expected a time from 0"));
  EXPECT_THAT(refusal_with("/edges/0/transfer_ms", 1e10), HasSubstr("expected a time from 0 to 1e9 milliseconds"));
}

TEST(WorkloadFile, an_unknown_key_is_refused_with_the_nearest_one) {
  EXPECT_EQ(refusal_with("/smaples", 1), "w.json: smaples: unknown key; did you mean 'samples'?");
  EXPECT_EQ(refusal_with("/sections/1/replica", 1),
            "w.json: sections[1].replica: unknown key; did you mean 'replicas'?");
  EXPECT_EQ(refusal_with("/edges/0/slot", 1), "w.json: edges[0].slot: unknown key; did you mean 'slots'?");
  EXPECT_EQ(refusal_with("/samples/0/cost", 1),
            "w.json: samples[0].cost: unknown key; there are: id, forward_ms, backward_ms");
}

TEST(WorkloadFile, an_unknown_section_is_refused_with_the_nearest_one) {
  EXPECT_EQ(refusal_with("/edges/0/from", "vison"),
            "w.json: edges[0].from: no section is called \"vison\"; did you mean 'vision'?");
  EXPECT_EQ(refusal_with("/samples/1/forward_ms/vison", 1),
            "w.json: samples[1].forward_ms.vison: no section has this name; did you mean 'vision'?");
  EXPECT_EQ(refusal_with("/samples/1/backward_ms/audio", 1),
            "w.json: samples[1].backward_ms.audio: no section has this name; there are: vision, llm");
}

TEST(WorkloadFile, a_key_that_stands_twice_is_refused_with_its_place) {
  std::string text = example().dump();
  text.replace(text.find("\"id\":1"), 6, "\"id\":1,\"id\":2");
  EXPECT_EQ(refusal(text), "w.json: samples[1].id: this key stands twice in its object");
}

TEST(WorkloadFile, names_and_ids_are_used_once) {
  EXPECT_EQ(refusal_with("/sections/1/name", "vision"),
            "w.json: sections[1].name: sections[0] has the name \"vision\" already");
  EXPECT_EQ(refusal_with("/samples/1/id", 0), "w.json: samples[1].id: samples[0] has the id 0 already");
  EXPECT_EQ(refusal_with("/edges/1", example()["edges"][0]), "w.json: edges[1]: joins the same sections as edges[0]");
  EXPECT_THAT(refusal_with("/sections/0/name", ""), HasSubstr("a section needs a name"));
}

TEST(WorkloadFile, impossible_numbers_are_refused) {
  EXPECT_EQ(refusal_with("/sections/0/replicas", 0),
            "w.json: sections[0].replicas: expected a whole number from 1 to 65536, got 0");
  EXPECT_THAT(refusal_with("/sections/0/replicas", 1.5), HasSubstr("got 1.5"));
  EXPECT_THAT(refusal_with("/sections/0/replicas", 18446744073709551615u), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(refusal_with("/sections/0/max_in_flight", 0), HasSubstr("sections[0].max_in_flight: expected"));
  EXPECT_THAT(refusal_with("/edges/0/slots", 0), HasSubstr("edges[0].slots: expected a whole number from 1"));
  EXPECT_THAT(refusal_with("/samples/0/id", "a"), HasSubstr("samples[0].id: expected a whole number"));
}

TEST(WorkloadFile, what_is_missing_is_named) {
  EXPECT_EQ(refusal("{}"), "w.json: sections is missing");
  EXPECT_EQ(refusal_without("/samples"), "w.json: samples is missing");
  EXPECT_EQ(refusal_without("/sections/1/mode"), "w.json: sections[1].mode is missing");
  EXPECT_EQ(refusal_without("/sections/1/replicas"), "w.json: sections[1].replicas is missing");
  EXPECT_EQ(refusal_without("/edges/0/to"), "w.json: edges[0].to is missing");
  EXPECT_EQ(refusal_without("/samples/1/id"), "w.json: samples[1].id is missing");
  EXPECT_EQ(refusal_without("/samples/1/forward_ms"), "w.json: samples[1].forward_ms is missing");
  EXPECT_EQ(refusal_with("/sections", json::array()),
            "w.json: sections: the list is empty; a workload needs a section");
  EXPECT_EQ(refusal_with("/samples", json::array()), "w.json: samples: the list is empty; a workload needs a sample");
  EXPECT_EQ(refusal_with("/samples", 3), "w.json: samples: expected a list, got 3");
}

TEST(WorkloadFile, modes_are_two) {
  EXPECT_EQ(refusal_with("/sections/0/mode", "forward-only"),
            "w.json: sections[0].mode = \"forward-only\" is not supported; these are: forward_backward, forward_only");
}

TEST(WorkloadFile, trained_sections_have_backward_times_and_others_none) {
  const std::string missing = "w.json: samples[0]: backward_ms has no time for llm, which is forward_backward";
  EXPECT_EQ(refusal_without("/samples/0/backward_ms/llm"), missing);
  EXPECT_THAT(refusal_without("/samples/0/backward_ms"), HasSubstr("samples[0]: backward_ms has no time for vision"));
  EXPECT_EQ(refusal_with("/sections/0/mode", "forward_only"),
            "w.json: samples[0].backward_ms: vision is forward_only and does not run backward passes");
  EXPECT_EQ(refusal_with("/samples/1/backward_ms/vision", 1),
            "w.json: samples[1].backward_ms: a time for vision, which has none in forward_ms");
}

TEST(WorkloadFile, a_sample_activates_something) {
  EXPECT_EQ(refusal_with("/samples/1", {{"id", 1}, {"forward_ms", json::object()}}),
            "w.json: samples[1].forward_ms: a sample needs a time in one section at least");
}

json chain() {
  json workload;
  for (const char* name : {"vision", "projector", "llm"}) {
    workload["sections"].push_back({{"name", name}, {"replicas", 1}, {"mode", "forward_only"}});
  }
  workload["edges"] = {{{"from", "vision"}, {"to", "projector"}}, {{"from", "projector"}, {"to", "llm"}}};
  workload["samples"] = {{{"id", 0}, {"forward_ms", {{"vision", 1}, {"projector", 1}, {"llm", 1}}}}};
  return workload;
}

TEST(WorkloadFile, a_sample_leaves_no_gap_between_two_sections) {
  json workload = chain();
  workload["samples"][0]["forward_ms"].erase("projector");
  EXPECT_EQ(
      refusal(workload.dump()),
      "w.json: samples[0].forward_ms: the sample runs vision and llm, but has no time for projector between them");
  workload["edges"].push_back({{"from", "vision"}, {"to", "llm"}});  // an edge that bypasses the projector
  EXPECT_EQ(refusal(workload.dump()), "accepted");
}

TEST(WorkloadFile, edges_form_no_cycle) {
  EXPECT_EQ(refusal_with("/edges/0/to", "vision"), "w.json: edges[0]: an edge from vision to itself");
  json workload = chain();
  workload["edges"].push_back({{"from", "llm"}, {"to", "projector"}});
  EXPECT_EQ(refusal(workload.dump()), "w.json: edges: the edges form a cycle: llm -> projector -> llm");
}

TEST(WorkloadFile, what_the_user_wrote_is_shown_on_one_line) {
  EXPECT_THAT(refusal_with("/samples/1/forward_ms/vi\nsion", 1), HasSubstr("forward_ms.vi\\nsion"));
}

TEST(WorkloadFile, no_cut_or_changed_byte_crashes_the_reader) {
  const std::string text = example().dump();
  for (std::size_t at = 0; at < text.size(); ++at) {
    refusal(text.substr(0, at));
    for (const char byte : {'"', '{', '}', ']', '-', '9', '\0', '\xff'}) {
      std::string changed = text;
      changed[at] = byte;
      refusal(changed);
    }
  }
}

TEST(WorkloadFile, a_path_that_cannot_be_read_is_named) {
  const std::filesystem::path folder = testing::TempDir();
  const auto told = [](const std::filesystem::path& path) {
    try {
      load_workload(path);
    } catch (const JobError& problem) {
      return std::string(problem.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(told(folder / "no-such-workload.json"),
              testing::ContainsRegex("cannot open .*no-such-workload.json: No such file"));
  EXPECT_THAT(told(folder), HasSubstr("is a folder"));
}

TEST(WorkloadFile, a_file_reads_as_its_text) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("maestro-workload-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << example().dump();
  EXPECT_EQ(load_workload(path).tasks.size(), 3u);
  std::filesystem::remove(path);
}

TEST(Timeline, has_one_event_per_pass_in_their_order) {
  const Workload workload = parse_workload(example().dump(), "w.json");
  const Schedule schedule{{{2, false, 3, 0, 8}, {2, true, 3, 8, 24}}, 24};
  EXPECT_EQ(timeline_json(workload, schedule),
            R"([{"sample":1,"section":"llm","replica":3,"pass":"forward","start_ms":0.0,"end_ms":8.0},)"
            R"({"sample":1,"section":"llm","replica":3,"pass":"backward","start_ms":8.0,"end_ms":24.0}])");
}

}  // namespace
}  // namespace maestro
