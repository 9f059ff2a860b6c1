#include "actors/edge_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;

/// A teacher whose hidden states go to a student, and data for both.
class EdgePaths : public ::testing::Test {
 protected:
  EdgePaths() {
    const Port tokens{"tokens", DType::i32, 1, false, false};
    const Port hidden{"hidden", DType::f32, 8, false, false};
    const Port teacher{"teacher", DType::f32, 8, false, false};
    add("data", {{}, {tokens}});
    add("teacher", {{tokens}, {hidden}});
    add("student", {{teacher}, {}});
    graph_.connect("data", "tokens", "teacher", "tokens");
    graph_.connect("teacher", "hidden", "student", "teacher");
  }
  void add(const char* name, Ports ports) {
    GraphNode node;
    node.name = name;
    node.ports = std::move(ports);
    graph_.add(std::move(node));
  }
  static ReplicaPlace at(std::uint32_t section, std::uint32_t replica, const std::string& device,
                         std::uint32_t process = 0) {
    return {SectionId(section), ReplicaIndex(replica), ProcessRank(process), {device}};
  }

  SectionGraph graph_;
};

TEST_F(EdgePaths, two_sections_on_one_device_hand_over_in_its_memory) {
  const std::vector<ReplicaPlace> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0")};
  EXPECT_THAT(direct_edges(graph_, places, false), ElementsAre(false, true));
  EXPECT_THAT(describe_paths(graph_, places, false),
              ElementsAre("data.tokens to teacher.tokens: by page-locked memory",
                          "teacher.hidden to student.teacher: in memory of the device"));
}

TEST_F(EdgePaths, devices_of_one_process_copy_between_each_other) {
  const std::vector<ReplicaPlace> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"), at(2, 1, "cuda:1")};
  EXPECT_THAT(direct_edges(graph_, places, false), ElementsAre(false, true));
  EXPECT_EQ(describe_paths(graph_, places, false)[1],
            "teacher.hidden to student.teacher: in memory of the device, by copies between devices");
}

TEST_F(EdgePaths, what_any_receiver_needs_in_memory_of_the_processor_goes_there_for_all) {
  const std::vector<ReplicaPlace> mixed{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"), at(2, 1, "cpu:1")};
  EXPECT_THAT(direct_edges(graph_, mixed, false), ElementsAre(false, false));
  EXPECT_EQ(describe_paths(graph_, mixed, false)[1], "teacher.hidden to student.teacher: by page-locked memory");
  const std::vector<ReplicaPlace> apart{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"),
                                        at(2, 1, "cuda:1", 1)};
  EXPECT_THAT(direct_edges(graph_, apart, false), ElementsAre(false, false));
  EXPECT_EQ(describe_paths(graph_, apart, false)[1],
            "teacher.hidden to student.teacher: by page-locked memory, by page-locked memory and RMA");
}

TEST_F(EdgePaths, forced_rma_is_rma_and_processors_are_not_spoken_of) {
  const std::vector<ReplicaPlace> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0")};
  EXPECT_THAT(direct_edges(graph_, places, true), ElementsAre(false, false));
  EXPECT_EQ(describe_paths(graph_, places, true)[1],
            "teacher.hidden to student.teacher: by page-locked memory and RMA");
  const std::vector<ReplicaPlace> processors{at(0, 0, "host"), at(1, 0, "cpu:0"), at(2, 0, "cpu:1")};
  EXPECT_THAT(describe_paths(graph_, processors, false), ElementsAre());
  EXPECT_THAT(direct_edges(graph_, processors, false), ElementsAre(false, false));
  EXPECT_EQ(edge_path(processors[1], 0, processors[2], 0, false), EdgePath::hand_over);
  EXPECT_EQ(edge_path(processors[1], 0, at(2, 0, "cpu:0", 1), 0, false), EdgePath::rma);
}

}  // namespace
}  // namespace maestro
