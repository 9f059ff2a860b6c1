// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/placement.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "runtime/core/result.hpp"
#include "runtime/graph/replica_mix.hpp"

namespace maestro {
namespace {

SectionGraph graph_of(std::int64_t teachers, std::int64_t students) {
  SectionGraph graph;
  const auto add = [&](const char* name, Role role, std::int64_t replicas) {
    GraphNode node;
    node.name = name;
    node.role = role;
    node.replicas = replicas;
    graph.add(node);
  };
  add("data", Role::source, 1);
  add("teacher", Role::frozen, teachers);
  add("student", Role::trained, students);
  return graph;
}

PlacementRequest request_of(std::int64_t processes, std::int64_t cores) {
  PlacementRequest request;
  request.processes = processes;
  request.cores = cores;
  request.devices.resize(3);
  return request;
}

std::vector<DeviceId> devices_of(std::initializer_list<const char*> names) {
  std::vector<DeviceId> devices;
  for (const char* name : names) devices.push_back(parse_device(name).value());
  return devices;
}

TEST(Placement, every_replica_of_an_emulated_section_has_a_device_of_its_own_however_few_cores_there_are) {
  PlacementRequest request = request_of(1, 1);
  request.devices[1] = {{DeviceId::Kind::emulated}};
  std::set<std::string> devices;
  for (const ReplicaPlacement& place : place(graph_of(40, 1), request)) {
    if (place.section == SectionId(1)) devices.insert(text_of(place.devices.at(0)));
  }
  EXPECT_EQ(devices.size(), 40u);
  EXPECT_EQ(devices.count("emulated:teacher/39"), 1u);
}

/// Returns a source, an encoder, and an llm of two stages with two ranks each.
SectionGraph encoder_and_stages(std::int64_t encoders, std::int64_t replicas) {
  SectionGraph graph;
  const auto add = [&](const char* name, Role role, std::int64_t of_section, std::int64_t stage = -1) {
    GraphNode node;
    node.name = name;
    node.role = role;
    node.replicas = of_section;
    if (stage >= 0) {
      node.section = "llm";
      node.stage = stage;
      node.stages = 2;
      node.layout = {2, 1};
    }
    graph.add(node);
  };
  add("data", Role::source, 1);
  add("vision", Role::trained, encoders);
  add("llm.stage0", Role::trained, replicas, 0);
  add("llm.stage1", Role::trained, replicas, 1);
  return graph;
}

std::vector<std::string> places_of(const std::vector<ReplicaPlacement>& places, SectionId section) {
  std::vector<std::string> found;
  for (const ReplicaPlacement& place : places) {
    if (place.section != section) continue;
    std::string text = std::to_string(place.process.value()) + ":";
    for (const DeviceId& device : place.devices) text += " " + text_of(device);
    found.push_back(text);
  }
  return found;
}

TEST(Placement, a_section_is_on_all_devices_of_another_in_their_processes) {  // PL-6
  using ::testing::ElementsAre;
  PlacementRequest request = request_of(3, 8);
  request.devices.resize(4);
  request.devices_of = {"", "llm"};
  const auto placed = place(encoder_and_stages(8, 2), request);
  EXPECT_THAT(places_of(placed, SectionId(2)), ElementsAre("0: cpu:0 cpu:1", "1: cpu:2 cpu:3"));
  EXPECT_THAT(places_of(placed, SectionId(3)), ElementsAre("2: cpu:4 cpu:5", "0: cpu:6 cpu:7"));
  EXPECT_THAT(places_of(placed, SectionId(1)), ElementsAre("0: cpu:0", "0: cpu:1", "2: cpu:4", "2: cpu:5", "1: cpu:2",
                                                           "1: cpu:3", "0: cpu:6", "0: cpu:7"));
  request.devices[2] = devices_of({"cpu:3", "cpu:2"});
  request.devices[3] = devices_of({"cpu:5", "cpu:7"});
  request.processes_of = {{}, {}, {1}, {2}};
  EXPECT_THAT(places_of(place(encoder_and_stages(4, 1), request), SectionId(1)),
              ElementsAre("1: cpu:3", "1: cpu:2", "2: cpu:5", "2: cpu:7"));
}

TEST(Placement, chunks_are_on_the_devices_of_their_first_stage) {  // PL-7
  using ::testing::ElementsAre;
  PlacementRequest request = request_of(3, 8);
  request.devices.resize(4);
  request.devices_of = {"", "llm"};
  request.chunk_of = {{SectionId(3), SectionId(2)}};
  const auto placed = place(encoder_and_stages(4, 2), request);
  EXPECT_THAT(places_of(placed, SectionId(2)), ElementsAre("0: cpu:0 cpu:1", "1: cpu:2 cpu:3"));
  EXPECT_EQ(places_of(placed, SectionId(3)), places_of(placed, SectionId(2)));
  EXPECT_THAT(places_of(placed, SectionId(1)), ElementsAre("0: cpu:0", "0: cpu:1", "1: cpu:2", "1: cpu:3"))
      << "a device counts once";
}

TEST(Placement, a_replica_on_the_devices_of_two_processes_is_refused) {  // PL-6
  PlacementRequest request = request_of(3, 8);
  request.devices.resize(4);
  request.devices_of = {"", "llm"};
  SectionGraph graph = encoder_and_stages(1, 1);
  GraphNode wide;
  wide.name = "wide";
  wide.layout = {2, 2};
  graph.add(wide);
  request.devices.resize(5);
  request.devices_of = {"", "", "", "", "llm"};
  try {
    (void)place(graph, request);
    ADD_FAILURE() << "placed";
  } catch (const JobError& refusal) {
    EXPECT_STREQ(
        refusal.what(),
        "wide.devices: replica 0 would be in processes 1 and 2, as the devices of llm are; a replica is in one "
        "process: use fewer devices for each (tensor, context)");
  }
}

TEST(Placement, every_rank_of_an_emulated_section_has_a_device_of_its_own) {
  SectionGraph graph;
  GraphNode node;
  node.name = "student.stage1";
  node.replicas = 2;
  node.layout = {2, 2};
  graph.add(node);
  PlacementRequest request;
  request.devices = {{{DeviceId::Kind::emulated}}};
  const auto places = place(graph, request);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(texts_of(places[1].devices),
            (std::vector<std::string>{"emulated:student.stage1/4", "emulated:student.stage1/5",
                                      "emulated:student.stage1/6", "emulated:student.stage1/7"}));
}

std::vector<std::uint32_t> ranks(const std::vector<ReplicaPlacement>& places) {
  std::vector<std::uint32_t> found;
  for (const ReplicaPlacement& place : places) found.push_back(place.process.value());
  return found;
}

struct Refusal {
  std::string message;
  ErrorCode code = ErrorCode::internal;
};

Refusal refusal_of(const SectionGraph& graph, const PlacementRequest& request) {
  try {
    (void)place(graph, request);
  } catch (const JobError& error) {
    return {error.what(), error.code()};
  }
  return {"no error", ErrorCode::internal};
}

TEST(Placement, one_process_hosts_everything_and_replicas_take_the_cores_in_turn) {  // PL-1
  const auto places = place(graph_of(1, 2), request_of(1, 2));
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(ranks(places), (std::vector<std::uint32_t>{0, 0, 0, 0}));
  EXPECT_EQ(text_of(places[0].devices.at(0)), "host");
  EXPECT_EQ(text_of(places[1].devices.at(0)), "cpu:0");
  EXPECT_EQ(text_of(places[2].devices.at(0)), "cpu:1");
  EXPECT_EQ(text_of(places[3].devices.at(0)), "cpu:0");
  EXPECT_EQ(places[3].section, SectionId(2));
  EXPECT_EQ(places[3].replica, ReplicaIndex(1));
}

TEST(Placement, the_source_is_in_rank_0_and_alone_there_when_processes_suffice) {  // PL-2
  EXPECT_EQ(ranks(place(graph_of(1, 2), request_of(2, 4))), (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(ranks(place(graph_of(1, 2), request_of(3, 4))), (std::vector<std::uint32_t>{0, 0, 1, 2}));
  EXPECT_EQ(ranks(place(graph_of(1, 2), request_of(4, 4))), (std::vector<std::uint32_t>{0, 1, 2, 3}));
}

TEST(Placement, replicas_of_one_section_never_share_a_device) {  // PL-1
  for (std::int64_t cores = 1; cores <= 5; ++cores) {
    for (std::int64_t teachers = 1; teachers <= cores; ++teachers) {
      for (std::int64_t students = 1; students <= cores; ++students) {
        std::set<std::pair<std::uint32_t, DeviceId>> taken;
        for (const ReplicaPlacement& at : place(graph_of(teachers, students), request_of(1, cores))) {
          EXPECT_TRUE(taken.emplace(at.section.value(), at.devices.at(0)).second)
              << text_of(at.devices.at(0)) << " of " << cores;
        }
      }
    }
  }
}

TEST(Placement, named_devices_are_used_as_named) {
  PlacementRequest request = request_of(1, 4);
  request.devices[2] = devices_of({"cpu:3", "cpu:1"});
  const auto places = place(graph_of(1, 2), request);
  EXPECT_EQ(text_of(places[2].devices.at(0)), "cpu:3");
  EXPECT_EQ(text_of(places[3].devices.at(0)), "cpu:1");
}

TEST(Placement, what_this_machine_lacks_is_refused_as_unavailable) {
  PlacementRequest request = request_of(1, 2);
  request.devices[1] = devices_of({"cpu:2"});
  Refusal refusal = refusal_of(graph_of(1, 1), request);
  EXPECT_EQ(refusal.code, ErrorCode::unavailable);
  EXPECT_EQ(refusal.message, "teacher.devices: \"cpu:2\": there are 2 devices, cpu:0 to cpu:1");
  request.devices[1] = devices_of({"cuda:0"});
  refusal = refusal_of(graph_of(1, 1), request);
  EXPECT_EQ(refusal.code, ErrorCode::unavailable);
  EXPECT_NE(refusal.message.find("no CUDA backend; use cpu:0 to cpu:1"), std::string::npos) << refusal.message;
  refusal = refusal_of(graph_of(1, 3), request_of(1, 2));
  EXPECT_EQ(refusal.code, ErrorCode::unavailable);
  EXPECT_NE(refusal.message.find("student.replicas = 3"), std::string::npos) << refusal.message;
}

TEST(Placement, a_cuda_device_that_is_missing_is_refused_with_what_is_missing) {
  PlacementRequest request = request_of(1, 2);
  request.devices[1] = devices_of({"cuda:0"});
  request.cuda.missing = "no NVIDIA driver: libcuda.so.1 cannot be opened";
  const Refusal refusal = refusal_of(graph_of(1, 1), request);
  EXPECT_EQ(refusal.code, ErrorCode::unavailable);
  EXPECT_EQ(refusal.message,
            "teacher.devices: \"cuda:0\": no NVIDIA driver: libcuda.so.1 cannot be opened; use cpu:0 to cpu:1");
}

TEST(Placement, cuda_devices_that_are_there_are_used_as_named_and_no_others) {
  PlacementRequest request = request_of(1, 1);
  request.cuda.of_host = 2;
  request.devices[1] = devices_of({"cuda:1"});
  request.devices[2] = devices_of({"cuda:0", "cuda:1"});  // more devices than cores
  const auto places = place(graph_of(1, 2), request);
  EXPECT_EQ(text_of(places[1].devices.at(0)), "cuda:1");
  EXPECT_EQ(text_of(places[2].devices.at(0)), "cuda:0");
  EXPECT_EQ(text_of(places[3].devices.at(0)), "cuda:1");
  request.devices[2] = devices_of({"cuda:0", "cuda:0"});  // PL-1
  EXPECT_NE(refusal_of(graph_of(1, 2), request).message.find("is named twice"), std::string::npos);
  request.devices[2] = devices_of({"cuda:0", "cuda:2"});
  EXPECT_EQ(refusal_of(graph_of(1, 2), request).message,
            "student.devices: \"cuda:2\": there are 2 CUDA devices, cuda:0 to cuda:1");
  request.devices[2] = {};  // without names, places are chosen among cores
  EXPECT_NE(refusal_of(graph_of(1, 2), request).message.find("there is 1 device"), std::string::npos);
}

TEST(Placement, a_section_that_names_its_devices_may_take_cores_and_gpus_of_a_host) {
  PlacementRequest request = request_of(1, 2);
  request.cuda.of_host = 2;
  request.devices[2] = devices_of({"cpu:0", "cpu:1", "cuda:0", "cuda:1"});
  const auto places = place(graph_of(1, 4), request);
  EXPECT_EQ(text_of(places.back().devices.at(0)), "cuda:1");
  EXPECT_TRUE(touches_cuda(places, SectionId(2)));
  EXPECT_FALSE(touches_cuda(places, SectionId(1)));
  EXPECT_EQ(text_of(find_place(places, SectionId(2), ReplicaIndex(1))->devices.at(0)), "cpu:1");
  EXPECT_EQ(find_place(places, SectionId(2), ReplicaIndex(4)), nullptr);
}

TEST(Placement, devices_that_are_neither_cores_nor_gpus_are_refused) {
  for (const DeviceId& device : {DeviceId(), DeviceId{DeviceId::Kind::emulated, 0, "teacher"}}) {
    PlacementRequest request = request_of(1, 2);
    request.devices[2] = {device, {DeviceId::Kind::cpu, 0}};
    const Refusal refusal = refusal_of(graph_of(1, 2), request);
    EXPECT_EQ(refusal.code, ErrorCode::invalid_argument) << text_of(device);
    EXPECT_EQ(refusal.message, "student.devices: \"" + text_of(device) + "\" is not a device; use cpu:0 to cpu:1");
  }
}

SectionGraph two_by_two() {
  SectionGraph graph;
  for (const char* name : {"teacher", "student"}) {
    GraphNode node;
    node.name = name;
    node.replicas = 2;
    if (graph.nodes().size() == 1) node.layout = {2, 1};
    graph.add(node);
  }
  return graph;
}

TEST(Placement, replicas_and_sections_share_numbered_emulated_devices_however_few_cores_there_are) {  // PL-5
  PlacementRequest request;
  request.devices = {devices_of({"emulated:7", "emulated:7"}),
                     devices_of({"emulated:7", "emulated:0", "emulated:1", "emulated:0"})};
  const auto places = place(two_by_two(), request);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[0].devices, places[1].devices);
  EXPECT_EQ(texts_of(places[3].devices), (std::vector<std::string>{"emulated:1", "emulated:0"}));
  request.devices[1][1] = request.devices[1][0];
  EXPECT_EQ(refusal_of(two_by_two(), request).message,
            "student.devices: \"emulated:7\" is named twice; the ranks of a replica need devices of their own");
}

TEST(Placement, replicas_follow_a_numbered_emulated_device_to_its_process) {  // PL-5
  PlacementRequest request;
  request.processes = 2;
  request.devices = {devices_of({"emulated:0", "emulated:1"}),
                     devices_of({"emulated:2", "emulated:1", "emulated:0", "emulated:3"})};
  const SectionGraph graph = two_by_two();
  EXPECT_EQ(ranks(place(graph, request)), (std::vector<std::uint32_t>{0, 1, 1, 0}));
  request.devices[1] = devices_of({"emulated:0", "emulated:1", "emulated:2", "emulated:3"});
  EXPECT_EQ(refusal_of(graph, request).message,
            "student.devices: \"emulated:1\" of replica 0 is in process 0, and for teacher in process 1; an emulated "
            "device is in one process: name another device, or process 1 in processes");
  request.processes_of = {{1, 1}, {1, 0}};
  EXPECT_EQ(ranks(place(graph, request)), (std::vector<std::uint32_t>{1, 1, 1, 0}));
  request.processes_of = {{1, 1}, {1, 0}};
  request.devices[1][3] = request.devices[1][0];
  EXPECT_NE(refusal_of(graph, request).message.find("\"emulated:0\" of replica 1 is in process 0, and for teacher"),
            std::string::npos);
}

TEST(Placement, a_device_for_each_replica_and_none_twice) {  // PL-1
  PlacementRequest request = request_of(1, 4);
  request.devices[2] = devices_of({"cpu:0"});
  EXPECT_NE(refusal_of(graph_of(1, 2), request).message.find("names 1 devices for 2 replicas"), std::string::npos);
  request.devices[2] = devices_of({"cpu:1", "cpu:1"});
  EXPECT_NE(refusal_of(graph_of(1, 2), request).message.find("\"cpu:1\" is named twice"), std::string::npos);
}

TEST(Placement, every_rank_of_every_replica_has_a_device_of_its_own_and_a_replica_stays_in_one_process) {  // PL-1
  SectionGraph graph;
  GraphNode node;
  node.name = "student";
  node.replicas = 2;
  node.layout = {2, 3};
  graph.add(node);
  PlacementRequest request;
  request.processes = 2;
  request.cores = 12;
  request.devices.resize(1);
  const auto places = place(graph, request);
  ASSERT_EQ(places.size(), 2u);
  std::set<DeviceId> devices;
  for (const ReplicaPlacement& each : places) devices.insert(each.devices.begin(), each.devices.end());
  EXPECT_EQ(places[0].devices.size(), 6u);
  EXPECT_EQ(devices.size(), 12u);
}

TEST(Placement, replicas_spread_over_hosts_and_each_takes_devices_of_its_own) {  // PL-1, PL-3
  PlacementRequest request = request_of(3, 2);
  request.hosts = {0, 1, 2};
  const auto places = place(graph_of(1, 4), request);
  ASSERT_EQ(places.size(), 6u);
  EXPECT_EQ(ranks(places), (std::vector<std::uint32_t>{0, 0, 1, 2, 0, 1}));
  std::set<std::pair<std::uint32_t, DeviceId>> taken;
  for (const ReplicaPlacement& at : places) {
    EXPECT_EQ(at.host, at.process.value());
    if (at.section != SectionId(2)) continue;
    EXPECT_TRUE(taken.emplace(at.host, at.devices.at(0)).second);
  }
}

TEST(Placement, a_host_whose_devices_are_taken_is_passed_over) {  // PL-1
  PlacementRequest request = request_of(3, 2);
  request.hosts = {0, 1, 1};
  const auto places = place(graph_of(1, 4), request);  // two processes of host 1, which has two devices
  std::map<std::uint32_t, int> students;
  for (const ReplicaPlacement& at : places) students[at.host] += at.section == SectionId(2) ? 1 : 0;
  EXPECT_EQ(students[0], 2);
  EXPECT_EQ(students[1], 2);
  EXPECT_EQ(refusal_of(graph_of(1, 5), request).message,
            "student.replicas = 5: there are 4 devices, 2 on each of 2 hosts; use at most 4; or oversubscribe the "
            "cores with --cpu-devices 5");
}

TEST(Placement, the_gpus_of_a_host_make_no_room_for_a_section_that_names_no_devices) {  // PL-1
  PlacementRequest request = request_of(5, 1);
  request.hosts = {0, 0, 0, 0, 1};
  request.cuda.of_host = 8;
  const auto places = place(graph_of(1, 2), request);
  EXPECT_EQ(places[2].host, 0u);
  EXPECT_EQ(places[3].host, 1u) << "the only core of the first host is taken";
}

TEST(Placement, one_device_name_may_stand_for_devices_of_two_hosts) {  // PL-1
  PlacementRequest request = request_of(2, 2);
  request.hosts = {0, 1};
  request.devices[2] = devices_of({"cpu:1", "cpu:1"});
  const auto places = place(graph_of(1, 2), request);
  EXPECT_NE(places[2].host, places[3].host);
  EXPECT_EQ(places[2].devices, places[3].devices);
}

TEST(Placement, too_many_ranks_are_refused_with_the_nearest_layout_that_fits) {
  SectionGraph graph;
  GraphNode node;
  node.name = "student";
  node.replicas = 2;
  node.layout = {2, 1};
  graph.add(node);
  PlacementRequest request;
  request.cores = 2;
  request.devices.resize(1);
  EXPECT_EQ(refusal_of(graph, request).message,
            "student: replicas x pipeline x context x tensor = 2 x 1 x 1 x 2 needs 4 devices, and there are 2 "
            "devices; nearest that fits: replicas x pipeline x context x tensor = 1 x 1 x 1 x 2; or oversubscribe the "
            "cores with --cpu-devices 4");
}

TEST(Placement, the_nearest_layout_fits_and_its_degrees_divide_those_wanted) {
  for (std::int64_t tensor = 1; tensor <= 8; ++tensor) {
    for (std::int64_t context = 1; context <= 8; ++context) {
      for (std::int64_t devices = 1; devices <= 20; ++devices) {
        const Degrees wanted{3, 2, {tensor, context}};
        const Degrees fit = nearest_fit(wanted, devices);
        EXPECT_LE(fit.devices(), devices);
        EXPECT_EQ(tensor % fit.layout.tensor + context % fit.layout.context, 0);
        EXPECT_TRUE(wanted.devices() > devices || fit.devices() == wanted.devices());
      }
    }
  }
}

/// Returns a source, a teacher, and a student with a replica for each context.
SectionGraph mixed_graph(const std::vector<std::int64_t>& contexts, std::int64_t tensor = 1) {
  const SectionGraph alike = graph_of(1, std::ssize(contexts));
  SectionGraph graph;
  for (GraphNode node : alike.nodes()) {
    if (node.trained()) {
      node.contexts = contexts;
      node.layout = {tensor, std::ranges::max(contexts)};
    }
    graph.add(std::move(node));
  }
  return graph;
}

TEST(Placement, replicas_of_several_contexts_have_as_many_devices_as_they_need) {  // PL-1
  const SectionGraph graph = mixed_graph({4, 1, 2});
  const SectionId student(2);
  EXPECT_EQ(places_of(place(graph, request_of(1, 8)), student),
            (std::vector<std::string>{"0: cpu:1 cpu:2 cpu:3 cpu:4", "0: cpu:5", "0: cpu:6 cpu:7"}));
  PlacementRequest named = request_of(2, 8);
  named.devices[2] = devices_of({"cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:7", "cpu:6", "cpu:5"});
  named.processes_of = {{}, {}, {1, 0, 1}};
  EXPECT_EQ(places_of(place(graph, named), student),
            (std::vector<std::string>{"1: cpu:0 cpu:1 cpu:2 cpu:3", "0: cpu:7", "1: cpu:6 cpu:5"}));
  PlacementRequest emulated = request_of(1, 1);
  emulated.devices[2] = {{DeviceId::Kind::emulated}};
  std::set<std::string> devices;
  for (const ReplicaPlacement& place : place(graph, emulated)) {
    for (const DeviceId& device : place.devices) {
      if (place.section == student) devices.insert(text_of(device));
    }
  }
  EXPECT_EQ(devices.size(), 7u);
}

TEST(Placement, replicas_of_several_contexts_that_do_not_fit_are_refused_with_the_nearest_that_do) {
  EXPECT_THAT(
      [&] {
        place(mixed_graph({4, 1, 1}, 2), request_of(1, 8));
      },
      ::testing::ThrowsMessage<JobError>("student.replicas = [{context = 4}, {count = 2, context = 1}] with tensor = 2 "
                                         "needs 12 devices, and there are 8 devices; nearest that fits: replicas = "
                                         "[{context = 2}, {count = 2, context = 1}]; or oversubscribe the cores with "
                                         "--cpu-devices 12"));
  using Mix = std::vector<std::int64_t>;
  EXPECT_EQ(nearest_mix({6, 4, 1}, 1, 8), (Mix{3, 4, 1}));
  EXPECT_EQ(nearest_mix({5, 1}, 1, 4), (Mix{1, 1})) << "1 is the only divisor of 5 below it";
  EXPECT_EQ(nearest_mix({1, 1, 1}, 2, 4), (Mix{1, 1}));
  EXPECT_EQ(nearest_mix({4, 2}, 1, 6), (Mix{4, 2}));
}

TEST(Placement, named_processes_are_used_as_named) {  // PL-2
  PlacementRequest request = request_of(3, 4);
  request.processes_of = {{}, {2, 0}, {}};
  const std::vector<ReplicaPlacement> places = place(graph_of(2, 2), request);
  EXPECT_EQ(find_place(places, SectionId(1), ReplicaIndex(0))->process, ProcessId(2));
  EXPECT_EQ(find_place(places, SectionId(1), ReplicaIndex(1))->process, ProcessId(0));
  EXPECT_EQ(find_place(places, SectionId(2), ReplicaIndex(0))->process, ProcessId(0)) << "in turn";
  EXPECT_EQ(find_place(places, SectionId(2), ReplicaIndex(1))->process, ProcessId(1));
}

TEST(Placement, a_process_that_is_missing_or_full_is_refused) {
  const auto refusal = [](const SectionGraph& graph, const PlacementRequest& request) -> std::string {
    try {
      (void)place(graph, request);
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  };
  PlacementRequest request = request_of(2, 1);
  request.processes_of = {{}, {2}, {}};
  EXPECT_EQ(refusal(graph_of(1, 1), request),
            "teacher.processes: 2 is no process of the job; it has 2, 0 to 1 (--processes)");
  request.hosts = {0, 1};
  request.processes_of = {{}, {1, 1}, {}};
  EXPECT_EQ(
      refusal(graph_of(2, 1), request),
      "teacher.processes: 1: its host has 1 device, and the section's replicas there need 2; name another process, "
      "or oversubscribe the cores with --cpu-devices 2");
}

TEST(Placement, further_replicas_of_a_section_with_least_share_the_devices_of_the_first) {  // PL-4
  SectionGraph graph;
  for (const char* name : {"data", "teacher", "student"}) {
    GraphNode node;
    node.name = name;
    node.role = graph.nodes().empty() ? Role::source : graph.nodes().size() == 1 ? Role::frozen : Role::trained;
    if (node.name == "teacher") node.replicas = 5, node.least = 2;
    graph.add(node);
  }
  const auto places = place(graph, request_of(4, 3));
  EXPECT_EQ(ranks(places), (std::vector<std::uint32_t>{0, 1, 2, 1, 2, 1, 3})) << "process 0 has the source alone";
  std::vector<std::string> devices;
  std::vector<bool> shares;
  for (const ReplicaPlacement& at : places) {
    if (at.section == SectionId(1)) devices.push_back(text_of(at.devices.at(0))), shares.push_back(at.shares);
  }
  EXPECT_EQ(devices, (std::vector<std::string>{"cpu:0", "cpu:1", "cpu:0", "cpu:1", "cpu:0"}));
  EXPECT_EQ(shares, (std::vector<bool>{false, false, true, true, true}));
}

}  // namespace
}  // namespace maestro
