// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/micro_batch_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;

/// Returns vision (by patches) -> projector (by patches) -> llm (by tokens), with a source.
SectionGraph vision_language(std::int64_t patches, std::int64_t samples) {
  SectionGraph graph;
  GraphNode source;
  source.name = "data";
  source.role = Role::source;
  source.micro_batch = 64;
  source.ports.outputs = {{"tokens", DType::i32, 1, false, false},
                          {"pixels", DType::f32, 4, false, false, Axis::patches}};
  graph.add(source);
  std::string from = "data";
  std::string port = "pixels";
  for (const char* name : {"vision", "projector"}) {
    GraphNode node;
    node.name = name;
    node.micro_batch = 1000;
    node.micro_batch_rows = patches;
    node.ports.inputs = {{"in", DType::f32, 4, true, false, Axis::patches}};
    node.ports.outputs = {{"out", DType::f32, 4, true, false, Axis::patches}};
    graph.add(node);
    graph.connect(from, port, name, "in");
    from = name;
    port = "out";
  }
  GraphNode llm;
  llm.name = "llm";
  llm.micro_batch = samples;
  llm.ports.inputs = {{"tokens", DType::i32, 1, false, false}, {"visual", DType::f32, 4, true, true, Axis::patches}};
  graph.add(llm);
  graph.connect("data", "tokens", "llm", "tokens");
  graph.connect("projector", "out", "llm", "visual");
  graph.validate();
  return graph;
}

constexpr std::uint32_t vision = 1;
constexpr std::uint32_t projector = 2;
constexpr std::uint32_t llm = 3;

std::vector<SampleRef> with_patches(const std::vector<std::int64_t>& patches) {
  std::vector<SampleRef> samples;
  for (const std::int64_t count : patches) samples.push_back({SampleId(samples.size()), 10, count, count > 0 ? 1 : 0});
  return samples;
}

TEST(MicroBatchCut, samples_without_images_never_enter_the_vision_section) {  // MC-1
  const StepCut cut = cut_step(vision_language(100, 2), with_patches({0, 4, 0, 4, 4, 0}));
  EXPECT_EQ(cut[llm], (std::vector<CutBatch>{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(cut[vision], (std::vector<CutBatch>{{1, 3, 4}}));
}

TEST(MicroBatchCut, a_step_without_images_has_no_vision_micro_batch) {  // MC-1
  const StepCut cut = cut_step(vision_language(100, 2), with_patches({0, 0, 0}));
  EXPECT_TRUE(cut[vision].empty());
  EXPECT_EQ(cut[llm].size(), 2u);
}

GraphNode node(const char* name, Role role, std::int64_t micro_batch, Ports ports) {
  GraphNode made;
  made.name = name;
  made.role = role;
  made.micro_batch = micro_batch;
  made.ports = std::move(ports);
  return made;
}

/// Returns data -> teacher, for the samples of source 1 of two, -> student, which gets tokens for all samples.
SectionGraph taught(std::int64_t teacher_batch, std::int64_t student_batch) {
  const Port tokens{"tokens", DType::i32, 1, false, false};
  Port lesson{"lesson", DType::f32, 4, false, false};
  lesson.chosen = true;
  SectionGraph graph;
  graph.add(node("data", Role::source, 64, {{}, {tokens}}));
  graph.add(node("teacher", Role::frozen, teacher_batch, {{tokens}, {{"hidden", DType::f32, 4, false, false}}}));
  graph.add(node("student", Role::trained, student_batch, {{tokens, lesson}, {}}));
  for (const char* to : {"teacher", "student"}) graph.connect("data", "tokens", to, "tokens");
  graph.connect("teacher", "hidden", "student", "lesson");
  graph.set_sources(SectionId(1), SourceSet({false, true}));
  graph.validate();
  return graph;
}

std::vector<SampleRef> of_sources(const std::vector<std::uint32_t>& sources) {
  std::vector<SampleRef> samples;
  for (const std::uint32_t source : sources) {
    samples.push_back({SampleId(samples.size()), 10});
    samples.back().source = source;
  }
  return samples;
}

TEST(MicroBatchCut, samples_of_other_sources_never_enter_a_chosen_section) {  // MC-1, MC-4
  const std::vector<SampleRef> samples = of_sources({0, 1, 1, 0, 0, 0, 1, 1});
  EXPECT_EQ(cut_step(taught(8, 2), samples)[1], (std::vector<CutBatch>{{1, 2, 6, 7}}));
  EXPECT_EQ(cut_step(taught(3, 2), samples)[1], (std::vector<CutBatch>{{1, 2}, {6, 7}}));
  EXPECT_EQ(cut_step(taught(8, 2), samples)[2], (std::vector<CutBatch>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_TRUE(cut_step(taught(8, 2), of_sources({0, 0, 0}))[1].empty());
}

TEST(MicroBatchCut, images_fill_the_budget_from_any_samples_and_end_with_a_micro_batch_of_the_consumer) {  // MC-3, MC-4
  const StepCut cut = cut_step(vision_language(10, 2), with_patches({4, 4, 4, 4, 1, 1, 4, 4}));
  EXPECT_EQ(cut[vision], (std::vector<CutBatch>{{0, 1}, {2, 3, 4, 5}, {6, 7}}));
}

TEST(MicroBatchCut, images_of_one_consumer_micro_batch_may_take_several_but_share_none_with_others) {  // MC-3, MC-4
  const StepCut cut = cut_step(vision_language(10, 4), with_patches({6, 6, 25, 6, 3, 3, 3, 0}));
  EXPECT_EQ(cut[vision], (std::vector<CutBatch>{{0}, {1}, {2}, {3}, {4, 5, 6}}));
}

TEST(MicroBatchCut, the_rest_of_a_consumer_micro_batch_that_was_cut_takes_nothing_of_the_next) {  // MC-4
  const StepCut cut = cut_step(vision_language(10, 2), with_patches({6, 6, 2, 2}));
  EXPECT_EQ(cut[projector], (std::vector<CutBatch>{{0}, {1}, {2, 3}}));  // the llm has {0, 1} and {2, 3}
}

TEST(MicroBatchCut, a_consumer_micro_batch_needs_two_of_its_producers_for_each_bound_of_rows_less_one) {
  const auto most = [](std::int64_t patches, std::int64_t samples, std::int64_t largest) {
    return most_needed_at_once(vision_language(patches, samples), SectionId(projector),
                               {SampleId(0), 1, largest, largest, 1});
  };
  EXPECT_EQ(most(10, 4, 5), 2 * 2 - 1);  // 20 patches: of three neighbours, two hold more than 10
  EXPECT_EQ(most(10, 4, 6), 4);          // only four samples exist
  EXPECT_EQ(most(30, 4, 5), 1);
  EXPECT_EQ(most_needed_at_once(vision_language(10, 4), SectionId(llm), {SampleId(0), 1, 5, 1}), 1);
}

TEST(MicroBatchCut, random_cuts_keep_order_limits_and_nesting_and_need_no_more_at_once_than_said) {  // MC-1..4
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const std::int64_t budget = draw(random, 1, 30);
    const SectionGraph graph = vision_language(budget, draw(random, 1, 5));
    std::vector<std::int64_t> patches;
    std::int64_t most = 0;
    for (std::int64_t at = draw(random, 0, 20); at > 0; --at) {
      patches.push_back(random() % 3 == 0 ? 0 : draw(random, 1, 12));
      most = std::max(most, patches.back());
    }
    const std::vector<SampleRef> samples = with_patches(patches);
    const SampleRef largest{SampleId(0), 1, most, most, 1};
    const StepCut cut = cut_step(graph, samples);
    for (const CutBatch& last : cut[projector + 1]) {  // waits for a complete chain of followers
      const auto needed = std::ranges::count_if(cut[vision], [&](const CutBatch& batch) {
        return std::ranges::any_of(batch, [&](auto place) { return std::ranges::count(last, place) > 0; });
      });
      EXPECT_LE(needed, most_needed_at_once(graph, SectionId(vision), largest));
    }
    for (const std::uint32_t section : {vision, projector}) {
      std::vector<std::uint32_t> seen;
      for (const CutBatch& batch : cut[section]) {
        std::int64_t rows = 0;
        for (const std::uint32_t place : batch) rows += patches[place];
        EXPECT_TRUE(rows <= budget || batch.size() == 1);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      EXPECT_EQ(static_cast<std::ptrdiff_t>(seen.size()),
                std::count_if(patches.begin(), patches.end(), [](auto count) { return count > 0; }));
      const std::uint32_t consumer = section + 1;
      std::map<std::uint32_t, std::size_t> batch_of;
      for (std::size_t at = 0; at < cut[section].size(); ++at) {
        for (const std::uint32_t place : cut[section][at]) batch_of[place] = at;
      }
      std::map<std::size_t, std::size_t> consumers;  // number of consumers by micro-batch
      std::vector<std::set<std::size_t>> producers(cut[consumer].size());
      for (std::size_t at = 0; at < cut[consumer].size(); ++at) {
        for (const std::uint32_t place : cut[consumer][at]) {
          if (batch_of.count(place) > 0) producers[at].insert(batch_of[place]);
        }
        EXPECT_LE(static_cast<std::int64_t>(producers[at].size()),
                  most_needed_at_once(graph, SectionId(section), largest));
        for (const std::size_t producer : producers[at]) ++consumers[producer];
      }
      for (const std::set<std::size_t>& needed : producers) {
        if (needed.size() < 2) continue;
        for (const std::size_t producer : needed) EXPECT_EQ(consumers[producer], 1u) << "micro-batch " << producer;
      }
    }
  }
}

}  // namespace
}  // namespace maestro
