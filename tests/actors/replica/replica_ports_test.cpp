// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_ports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "actors/services/imported_memories.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/support/apart_memory.hpp"

namespace maestro::testing {
namespace {

constexpr EdgeId edge(0);
constexpr std::uint32_t senders = 4;

/// Ports of a frozen decoder that receives from four encoders; the test acts for the encoders.
class ReplicaPortsTest : public ::testing::Test {
 protected:
  ReplicaPortsTest() {
    GraphNode encoder;
    encoder.name = "encoder";
    encoder.role = Role::frozen;
    encoder.replicas = senders;
    encoder.ports.outputs.push_back({"out", DType::f32, 1, false, false});
    GraphNode decoder;
    decoder.name = "decoder";
    decoder.role = Role::frozen;
    decoder.ports.inputs.push_back({"in", DType::f32, 1, false, false});
    graph_.add(std::move(encoder));
    graph_.add(std::move(decoder));
    graph_.connect("encoder", "out", "decoder", "in");
  }

  std::unique_ptr<ReplicaPorts> receiver() {
    ReplicaPortsOptions options;
    options.graph = &graph_;
    options.section = SectionId(1);
    options.limits.slots = slots;
    options.limits.train_samples = 64;
    auto ports = std::make_unique<ReplicaPorts>(options, network_, PortEvents{[] {}, {}});
    Directory directory;
    directory.processes.emplace_back();
    for (std::uint32_t sender = 0; sender < senders; ++sender) {
      ReplicaAddress peer;
      peer.section = SectionId(0);
      peer.replica = ReplicaIndex(sender);
      peer.actor = bench_.stand_in([](const Credits&) {});
      peers_.push_back(peer.actor);
      directory.processes.front().replicas.push_back(peer);
    }
    Outbox outbox;
    outbox.credit = [this](const caf::actor& to, Credit credit) {
      const auto at = std::ranges::find(peers_, to) - peers_.begin();
      credits_.emplace_back(static_cast<std::uint32_t>(at), credit.released);
    };
    ports->connect(directory, std::move(outbox));
    return ports;
  }

  /// Returns the work item of a micro-batch with rows from `sender`.
  static MicroBatchPlan token(std::uint64_t sequence, std::uint32_t sender) {
    MicroBatchPlan plan;
    plan.section = SectionId(1);
    plan.samples = {{SampleId(sequence), 1}};
    plan.arrivals = {{{edge}, sequence, {{1, ReplicaIndex(sender)}}}};
    return plan;
  }
  void take_and_release(ReplicaPorts& ports, const MicroBatchPlan& plan) {
    PieceHandOver piece;
    piece.sequence = plan.arrivals.front().sequence;
    piece.rows = 1;
    piece.buffer = buffers_.acquire();
    ASSERT_TRUE(ports.handed_over(piece, [](Channel, std::uint64_t) {}).ok());
    ASSERT_TRUE(ports.release(plan).ok());
  }
  void expect(ReplicaPorts& ports, const MicroBatchPlan& plan) {
    ASSERT_TRUE(ports.expect(plan, [](Channel, std::uint64_t) {}).ok());
  }

  static constexpr std::int64_t slots = 2;
  SectionGraph graph_;
  Network network_{NetworkOptions(), false};
  ActorBench bench_;
  BufferPool buffers_{64, 8};
  std::vector<caf::actor> peers_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> credits_;  // sender, released
};

using Credits = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

TEST_F(ReplicaPortsTest,
       a_released_slot_is_told_to_the_sender_of_the_sequence_that_it_lets_in_and_to_no_other) {  // RB-3
  const std::unique_ptr<ReplicaPorts> owned = receiver();
  ReplicaPorts& ports = *owned;
  const std::vector<std::uint32_t> sender_of = {0, 1, 2, 3, 1, 1};
  for (std::uint64_t sequence = 0; sequence < sender_of.size(); ++sequence) {
    expect(ports, token(sequence, sender_of[sequence]));
  }
  EXPECT_TRUE(credits_.empty());  // the first sequences of a ring need no credit
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
    take_and_release(ports, token(sequence, sender_of[sequence]));
  }
  EXPECT_EQ(credits_, (Credits{{2, 1}, {3, 2}, {1, 3}, {1, 4}}));
}

TEST_F(ReplicaPortsTest, a_slot_that_is_free_before_the_token_comes_is_told_when_it_does) {  // RB-2, RB-3
  const std::unique_ptr<ReplicaPorts> owned = receiver();
  ReplicaPorts& ports = *owned;
  expect(ports, token(0, 0));
  expect(ports, token(1, 1));
  take_and_release(ports, token(0, 0));
  EXPECT_TRUE(credits_.empty());  // no piece waits
  expect(ports, token(2, 3));
  EXPECT_EQ(credits_, (Credits{{3, 1}}));
  expect(ports, token(3, 2));
  EXPECT_EQ(credits_.size(), 1U);  // the ring is full
  take_and_release(ports, token(1, 1));
  EXPECT_EQ(credits_, (Credits{{3, 1}, {2, 2}}));
}

TEST_F(ReplicaPortsTest, slots_released_out_of_order_are_told_once_with_the_prefix) {  // RB-3, CL-6
  const std::unique_ptr<ReplicaPorts> owned = receiver();
  ReplicaPorts& ports = *owned;
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) expect(ports, token(sequence, sequence < 2 ? 0 : 2));
  take_and_release(ports, token(1, 0));
  EXPECT_TRUE(credits_.empty());
  take_and_release(ports, token(0, 0));
  EXPECT_EQ(credits_, (Credits{{2, 2}}));  // a single credit admits both of its sequences
}

TEST_F(ReplicaPortsTest, a_ring_has_room_for_the_most_rows_of_a_rank_in_a_micro_batch_and_for_no_more) {
  GraphNode llm;
  llm.name = "llm";
  llm.role = Role::frozen;
  llm.micro_batch = 8;
  llm.micro_batch_rows = 100;  // tokens
  llm.layout.context = 3;
  llm.ports.inputs = {{"tokens", DType::i32, 1, false, false}, {"visual", DType::f32, 1, false, true, Axis::visual}};
  GraphNode data;
  data.name = "data";
  data.role = Role::source;
  data.ports.outputs = {{"tokens", DType::i32, 1, false, false}, {"visual", DType::f32, 1, false, false, Axis::visual}};
  SectionGraph graph;
  graph.add(std::move(data));
  graph.add(std::move(llm));
  graph.connect("data", "tokens", "llm", "tokens");
  graph.connect("data", "visual", "llm", "visual");
  const auto payloads = [&](std::int64_t tokens, std::int64_t patches) {
    ReplicaPortsOptions options;
    options.graph = &graph;
    options.section = SectionId(1);
    options.limits.slots = slots;
    options.largest = {SampleId(0), tokens, patches, patches, 1};
    std::vector<std::size_t> bytes;
    for (const RingAddress& ring : ReplicaPorts(options, network_, {[] {}, {}}).rings()) {
      bytes.push_back(ring.payload_bytes);
    }
    return bytes;
  };
  EXPECT_EQ(payloads(40, 30), (std::vector<std::size_t>{34 * 4, 34 * 4})) << "visual rows are tokens, too";
  EXPECT_EQ(payloads(5, 2), (std::vector<std::size_t>{14 * 4, 6 * 4}));
  EXPECT_EQ(payloads(130, 2), (std::vector<std::size_t>{44 * 4, 6 * 4})) << "a larger sample is alone";
}

class Imported final : public ImportedMemory {
 public:
  explicit Imported(std::byte* data) : data_(data) {}
  [[nodiscard]] std::byte* data() const override { return data_; }

 private:
  std::byte* data_;
};

/// A teacher on a device, and a student placed by the test.
class DevicePortsTest : public ::testing::Test {
 protected:
  DevicePortsTest() {
    make_graph(Role::trained);
    device_.export_memory = [](const std::byte*) { return std::string("a handle"); };
    device_.import_memory = [this](std::string_view exported, std::string&) {
      imported_.emplace_back(exported);
      return opened_.keep(std::make_unique<Imported>(nullptr));
    };
    device_.log = [this](const std::string& line) { said_.push_back(line); };
  }
  void make_graph(Role of_teacher) {
    graph_ = SectionGraph();
    GraphNode teacher;
    teacher.name = "teacher";
    teacher.role = of_teacher;
    teacher.ports.outputs.push_back({"hidden", DType::f32, 8, false, false});
    GraphNode student;
    student.name = "student";
    student.ports.inputs.push_back({"wanted", DType::f32, 8, false, false});
    graph_.add(std::move(teacher));
    graph_.add(std::move(student));
    graph_.connect("teacher", "hidden", "student", "wanted");
  }
  static ReplicaPlacement at(std::uint32_t section, const std::string& device, std::uint32_t process,
                             std::uint32_t host = 0) {
    return {SectionId(section), ReplicaIndex(0), ProcessId(process), {*parse_device(device)}, host};
  }
  std::unique_ptr<ReplicaPorts> ports(std::uint32_t section, const ReplicaPlacement& student, MemorySpace& memory) {
    places_ = {at(0, "cuda:0", 0), student};
    ReplicaPortsOptions options;
    options.graph = &graph_;
    options.section = SectionId(section);
    options.process = places_[section].process;
    options.limits.slots = 2;
    options.limits.train_samples = 64;
    options.remote = true;
    options.device = device_;
    options.device.memory = &memory;
    options.device.pins = memory.host() ? nullptr : &memory;
    options.device.paths = TransferPaths(graph_, places_, false);
    return std::make_unique<ReplicaPorts>(options, network_, PortEvents{[] {}, {}});
  }
  /// Returns the teacher's ports, connected with the student's.
  std::unique_ptr<ReplicaPorts> connected(const ReplicaPlacement& student) {
    const bool there = student.devices[0].is_cuda();
    const auto receiver = ports(1, student, there ? static_cast<MemorySpace&>(other_) : host_memory());
    ReplicaAddress peer;
    peer.section = SectionId(1);
    peer.process = student.process;
    peer.rings = receiver->rings();
    Directory directory;
    directory.processes.emplace_back();
    directory.processes.front().replicas.push_back(peer);
    auto sender = ports(0, student, own_);
    sender->connect(directory, {});
    return sender;
  }
  /// Returns the memory kind of the teacher's hidden states when they leave.
  static MemoryKind memory_of(ReplicaPorts& sender) {
    MicroBatchPlan plan;
    plan.samples = {{SampleId(0), 1}};
    PieceOut piece;
    piece.rows = 1;
    plan.pieces.push_back(piece);
    return sender.acquire(plan, Direction::forward).front().memory_kind();
  }

  SectionGraph graph_;
  Network network_{NetworkOptions(), false};
  ImportedMemories opened_;
  ApartMemory own_;
  ApartMemory other_;
  std::vector<ReplicaPlacement> places_;
  PortDevice device_;
  std::vector<std::string> imported_;
  std::vector<std::string> said_;
};

using Lines = std::vector<std::string>;

TEST_F(DevicePortsTest, what_a_processor_of_the_process_reads_is_made_in_its_memory) {  // RB-4
  const auto sender = connected(at(1, "cpu:0", 0));
  EXPECT_EQ(memory_of(*sender), MemoryKind::host);
  EXPECT_EQ(own_.pinned().size(), 1U);  // only the pool; nothing is staged
}

TEST_F(DevicePortsTest, what_goes_to_a_processor_of_another_process_is_staged_and_nothing_is_offered_for_it) {  // RB-4
  const auto sender = connected(at(1, "cpu:0", 1));
  EXPECT_EQ(memory_of(*sender), MemoryKind::device);
  EXPECT_EQ(own_.pinned().size(), 1U);  // only the chunks' blocks
  EXPECT_EQ(said_, Lines());
  const RingAddress ring = ports(1, at(1, "cpu:0", 1), host_memory())->rings().front();
  EXPECT_EQ(ring.device_memory, "");
  EXPECT_EQ(ring.device_region, RemoteRegion());
}

TEST_F(DevicePortsTest, rings_are_pinned_where_another_process_writes_into_them) {  // RB-6
  auto receiver = ports(1, at(1, "cuda:1", 0), other_);
  EXPECT_EQ(other_.pinned().size(), 0U);
  receiver = ports(1, at(1, "cuda:1", 1), other_);
  EXPECT_EQ(other_.pinned().size(), 1U);
  receiver.reset();
  EXPECT_EQ(other_.pinned().size(), 0U);
}

TEST_F(DevicePortsTest, the_pin_moves_with_a_ring_that_is_renewed) {  // RB-5, RB-6
  make_graph(Role::frozen);
  const auto receiver = ports(1, at(1, "cuda:1", 1, 1), other_);
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    ASSERT_EQ(receiver->renew_inputs(Epoch(epoch)).size(), 1U);
    EXPECT_EQ(other_.pinned().size(), 2U);  // with the memory of the previous epoch
  }
}

TEST_F(DevicePortsTest, a_processors_tensor_is_pinned_for_the_device_of_its_process_that_reads_it) {  // RB-6
  for (const std::uint32_t process : {0U, 1U}) {
    places_ = {at(0, "cpu:0", 0), at(1, "cuda:0", process)};
    ReplicaPortsOptions options;
    options.graph = &graph_;
    options.limits = {.slots = 2, .train_samples = 64};
    options.device.pins = &other_;
    options.device.paths = TransferPaths(graph_, places_, false);
    const ReplicaPorts sender(options, network_, PortEvents{[] {}, {}});
    EXPECT_EQ(other_.pinned().size(), process == 0 ? 1U : 0U);
  }
}

TEST_F(DevicePortsTest, a_device_of_another_process_offers_memory_which_the_sender_opens) {  // RB-4
  const auto sender = connected(at(1, "cuda:1", 1));
  EXPECT_EQ(memory_of(*sender), MemoryKind::device);
  EXPECT_EQ(imported_, Lines{"a handle"});
  EXPECT_EQ(said_, Lines());
  const auto receiver = ports(1, at(1, "cuda:1", 1), other_);
  const RingAddress ring = receiver->rings().front();
  EXPECT_NE(ring.device_ring, ring.ring);
  EXPECT_TRUE(receiver->owns_ring(ring.ring));
  EXPECT_TRUE(receiver->owns_ring(ring.device_ring));
}

TEST_F(DevicePortsTest, what_is_not_shared_is_staged_and_told_once_with_the_reason) {  // RB-4
  device_.import_memory = [](std::string_view, std::string& why_not) {
    why_not = "it is on another host";
    return std::weak_ptr<ImportedMemory>();
  };
  (void)connected(at(1, "cuda:1", 1));
  device_.export_memory = [](const std::byte*) { return std::string(); };
  (void)connected(at(1, "cuda:1", 1));
  EXPECT_EQ(said_, (Lines{"teacher.hidden -> student.wanted: not by CUDA IPC (it is on another host), by pinned "
                          "memory in chunks",
                          "teacher.hidden -> student.wanted: not by CUDA IPC (the receiver does not share its memory), "
                          "by pinned memory in chunks"}));
  EXPECT_EQ(other_.blocks(), 0U);  // unreachable device memory is returned
}

TEST_F(DevicePortsTest, memory_that_the_network_alone_reaches_is_offered_and_written_to) {  // RB-4
  NetworkOptions options;
  options.provider = "tcp";
  Network network(options, true);
  device_.register_memory = [&](std::byte* data, std::size_t bytes) -> Result<std::unique_ptr<Region>> {
    return network.register_memory(data, bytes);
  };
  const ReplicaPlacement student = at(1, "cuda:1", 1, 1);
  (void)connected(student);
  EXPECT_EQ(said_, Lines{"teacher.hidden -> student.wanted: from device to device by RMA"});
  const auto receiver = ports(1, student, other_);
  const RingAddress ring = receiver->rings().front();
  EXPECT_EQ(ring.device_memory, "");
  EXPECT_NE(ring.device_region, RemoteRegion());
  EXPECT_EQ(other_.blocks(), 1U);
}

TEST_F(DevicePortsTest, what_the_network_does_not_reach_is_staged_and_told_with_the_reason) {  // RB-4
  device_.register_memory = [](std::byte*, std::size_t) -> Result<std::unique_ptr<Region>> {
    return Error{ErrorCode::unavailable, "provider tcp has no FI_HMEM"};
  };
  (void)connected(at(1, "cuda:1", 1, 1));
  EXPECT_EQ(said_, Lines{"teacher.hidden -> student.wanted: by pinned memory in chunks (provider tcp has no "
                         "FI_HMEM)"});
  EXPECT_EQ(imported_, Lines());
}

}  // namespace
}  // namespace maestro::testing
