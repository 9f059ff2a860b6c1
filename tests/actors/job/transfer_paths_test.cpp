// SPDX-License-Identifier: Apache-2.0
#include "actors/job/transfer_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;

/// A teacher that sends hidden states to a student, and data for both.
class TransferPathsTest : public ::testing::Test {
 protected:
  TransferPathsTest() {
    const Port tokens{"tokens", DType::i32, 1, false, false};
    const Port hidden{"hidden", DType::f32, 8, false, false};
    const Port wanted{"teacher", DType::f32, 8, false, false};
    add("data", {{}, {tokens}});
    add("teacher", {{tokens}, {hidden}});
    add("student", {{wanted}, {}});
    graph_.connect("data", "tokens", "teacher", "tokens");
    graph_.connect("teacher", "hidden", "student", "teacher");
  }
  void add(const char* name, Ports ports, Role role = Role::frozen) {
    GraphNode node;
    node.name = name;
    node.role = role;
    node.ports = std::move(ports);
    graph_.add(std::move(node));
  }
  static ReplicaPlacement at(std::uint32_t section, std::uint32_t replica, const std::string& device,
                             std::uint32_t process = 0) {
    return {SectionId(section), ReplicaIndex(replica), ProcessId(process), {parse_device(device).value_or(DeviceId())}};
  }

  std::vector<std::string> describe(const std::vector<ReplicaPlacement>& places) const {
    return TransferPaths(graph_, places, false).describe();
  }
  /// Returns whether the sender's hidden states leave by the host.
  bool leaves_by_host(const std::vector<ReplicaPlacement>& places, const EdgeEnd& sender) const {
    return TransferPaths(graph_, places, false).leaves_by_host({EdgeId(1)}, sender);
  }

  static constexpr EdgeEnd teacher{SectionId(1), ReplicaIndex(0)};
  static constexpr EdgeEnd student{SectionId(2), ReplicaIndex(0)};
  SectionGraph graph_;
};

TEST_F(TransferPathsTest, two_sections_on_one_device_exchange_values_in_its_memory) {
  const std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0")};
  EXPECT_THAT(describe(places), ElementsAre("data.tokens -> teacher.tokens: by pinned memory",
                                            "teacher.hidden -> student.teacher: in memory of the device"));
  EXPECT_FALSE(leaves_by_host(places, teacher));
}

TEST_F(TransferPathsTest, devices_of_one_process_copy_between_each_other) {
  const std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"),
                                             at(2, 1, "cuda:1")};
  EXPECT_EQ(describe(places)[1],
            "teacher.hidden -> student.teacher: in memory of the device, by copies between devices");
  EXPECT_FALSE(leaves_by_host(places, teacher));
}

TEST_F(TransferPathsTest, what_a_processor_of_the_process_reads_goes_to_its_memory_for_all) {
  std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"), at(2, 1, "cpu:1")};
  EXPECT_EQ(describe(places)[1], "teacher.hidden -> student.teacher: by pinned memory");
  EXPECT_TRUE(leaves_by_host(places, teacher));
  places.push_back(at(2, 2, "cuda:0", 1));
  EXPECT_EQ(describe(places)[1], "teacher.hidden -> student.teacher: by pinned memory, by pinned memory and RMA");
}

TEST_F(TransferPathsTest, so_does_what_a_processor_reads_from_the_same_port_by_another_edge) {
  add("probe", {{{"seen", DType::f32, 8, false, false}}, {}});
  graph_.connect("teacher", "hidden", "probe", "seen");
  const std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"),
                                             at(3, 0, "cpu:0")};
  EXPECT_EQ(describe(places)[1], "teacher.hidden -> student.teacher: by pinned memory");
  EXPECT_TRUE(leaves_by_host(places, teacher));
}

TEST_F(TransferPathsTest, a_reader_of_another_port_does_not_take_a_tensor_to_the_host) {
  add("vision", {{}, {{"states", DType::f32, 8, false, false}, {"counts", DType::i32, 1, false, false}}});
  add("fusion", {{{"states", DType::f32, 8, false, false}}, {}});
  add("log", {{{"counts", DType::i32, 1, false, false}}, {}});
  graph_.connect("vision", "states", "fusion", "states");
  graph_.connect("vision", "counts", "log", "counts");
  const std::vector<ReplicaPlacement> places{at(3, 0, "cuda:0"), at(4, 0, "cuda:1"), at(5, 0, "cpu:0")};
  EXPECT_THAT(describe(places), ElementsAre("vision.states -> fusion.states: by copies between devices",
                                            "vision.counts -> log.counts: by pinned memory"));
  const TransferPaths paths(graph_, places, false);
  EXPECT_FALSE(paths.leaves_by_host({EdgeId(2)}, {SectionId(3), ReplicaIndex(0)}));
  EXPECT_TRUE(paths.leaves_by_host({EdgeId(3)}, {SectionId(3), ReplicaIndex(0)}));
}

TEST_F(TransferPathsTest, devices_of_two_processes_share_memory_on_one_host_and_write_to_another_host) {
  std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:1", 1)};
  EXPECT_EQ(describe(places)[1], "teacher.hidden -> student.teacher: by CUDA IPC");
  EXPECT_FALSE(leaves_by_host(places, teacher));
  EXPECT_THAT(TransferPaths(graph_, places, false).arriving({EdgeId(1)}, student), ElementsAre(TransferPath::ipc));
  EXPECT_THAT(TransferPaths(graph_, places, false).leaving({EdgeId(1)}, teacher), ElementsAre(TransferPath::ipc));
  places[2].host = 1;
  EXPECT_EQ(describe(places)[1],
            "teacher.hidden -> student.teacher: from device to device by RMA if it registers, else by pinned "
            "memory in chunks");
}

TEST_F(TransferPathsTest, a_device_and_a_processor_of_two_processes_meet_in_page_locked_memory) {
  EXPECT_EQ(describe({at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cpu:0", 1)})[1],
            "teacher.hidden -> student.teacher: by pinned memory in chunks");
  EXPECT_EQ(describe({at(0, 0, "host"), at(1, 0, "cpu:0"), at(2, 0, "cuda:0", 1)})[0],
            "teacher.hidden -> student.teacher: by pinned memory and RMA");
}

TEST_F(TransferPathsTest, an_edge_without_gradients_has_a_single_line) {
  EXPECT_THAT(describe({at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cpu:0", 1)}),
              ElementsAre("data.tokens -> teacher.tokens: by pinned memory",
                          "teacher.hidden -> student.teacher: by pinned memory in chunks"));
}

TEST_F(TransferPathsTest, gradients_are_described_where_they_come_back_another_way) {
  add("trunk", {{}, {{"states", DType::f32, 8, true, false}}}, Role::trained);
  add("head", {{{"states", DType::f32, 8, true, false}}, {}}, Role::trained);
  graph_.connect("trunk", "states", "head", "states");
  EXPECT_THAT(describe({at(3, 0, "cuda:0"), at(4, 0, "cpu:0", 1)}),
              ElementsAre("trunk.states -> head.states: by pinned memory in chunks",
                          "gradient of head.states -> trunk.states: by pinned memory and RMA"));
  EXPECT_THAT(describe({at(3, 0, "cuda:0"), at(4, 0, "cuda:1", 1)}),
              ElementsAre("trunk.states -> head.states: by CUDA IPC"));
}

TEST_F(TransferPathsTest, gradients_go_by_the_host_where_those_that_made_the_values_work_on_a_processor) {
  const std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(1, 1, "cpu:0", 1),
                                             at(2, 0, "cuda:1"), at(2, 1, "cuda:1", 1)};
  const TransferPaths paths(graph_, places, false);
  const EdgeEnd beside{SectionId(2), ReplicaIndex(1)};  // on a GPU, with its teacher on a CPU
  EXPECT_FALSE(paths.leaves_by_host({EdgeId(1), Direction::gradient}, student));
  EXPECT_TRUE(paths.leaves_by_host({EdgeId(1), Direction::gradient}, beside));
  EXPECT_EQ(paths.path({EdgeId(1), Direction::gradient}, student, teacher), TransferPath::between_gpus);
  EXPECT_EQ(paths.path({EdgeId(1), Direction::gradient}, beside, teacher), TransferPath::staged_rma);
}

TEST_F(TransferPathsTest, forced_rma_is_rma_and_processors_are_not_spoken_of) {
  const std::vector<ReplicaPlacement> places{at(0, 0, "host"), at(1, 0, "cuda:0"), at(2, 0, "cuda:0"),
                                             at(2, 1, "cpu:0")};
  const TransferPaths forced(graph_, places, true);
  EXPECT_EQ(forced.path({EdgeId(1)}, teacher, student), TransferPath::device_rma);
  EXPECT_EQ(forced.path({EdgeId(1)}, teacher, {SectionId(2), ReplicaIndex(1)}), TransferPath::chunked_rma);
  EXPECT_FALSE(forced.leaves_by_host({EdgeId(1)}, teacher));
  const std::vector<ReplicaPlacement> processors{at(0, 0, "host"), at(1, 0, "cpu:0"), at(2, 0, "cpu:1"),
                                                 at(2, 1, "cpu:0", 1)};
  EXPECT_THAT(describe(processors), ElementsAre());
  EXPECT_TRUE(leaves_by_host(processors, teacher));
  const TransferPaths paths(graph_, processors, false);
  EXPECT_EQ(paths.path({EdgeId(1)}, teacher, student), TransferPath::in_process);
  EXPECT_EQ(paths.path({EdgeId(1)}, teacher, {SectionId(2), ReplicaIndex(1)}), TransferPath::rma);
}

}  // namespace
}  // namespace maestro
