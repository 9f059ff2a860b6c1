#include "actors/replica_ports.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/actors/actor_bench.hpp"

namespace maestro::testing {
namespace {

constexpr EdgeId edge(0);
constexpr std::uint32_t senders = 4;

/// The ports of a frozen decoder, which four encoders send to; the test plays the encoders.
class ReplicaPortsTest : public ::testing::Test {
 protected:
  ReplicaPortsTest() {
    GraphNode encoder;
    encoder.name = "encoder";
    encoder.mode = Mode::forward_only;
    encoder.replicas = senders;
    encoder.ports.outputs.push_back({"out", DType::f32, 1, false, false});
    GraphNode decoder;
    decoder.name = "decoder";
    decoder.mode = Mode::forward_only;
    decoder.ports.inputs.push_back({"in", DType::f32, 1, false, false});
    graph_.add(std::move(encoder));
    graph_.add(std::move(decoder));
    graph_.connect("encoder", "out", "decoder", "in");
  }

  ReplicaPorts receiver() {
    ReplicaPortsOptions options;
    options.graph = &graph_;
    options.section = SectionId(1);
    options.limits.slots = slots;
    options.limits.train_samples = 64;
    ReplicaPorts ports(options, network_, {[] {}, {}});
    Directory directory;
    directory.processes.emplace_back();
    for (std::uint32_t sender = 0; sender < senders; ++sender) {
      ReplicaAddress peer;
      peer.section = SectionId(0);
      peer.replica = ReplicaIndex(sender);
      peer.actor = bench_.stand_in([](Credit) {});
      peers_.push_back(peer.actor);
      directory.processes.front().replicas.push_back(peer);
    }
    Outbox outbox;
    outbox.credit = [this](const caf::actor& to, Credit credit) {
      const auto at = std::ranges::find(peers_, to) - peers_.begin();
      credits_.emplace_back(static_cast<std::uint32_t>(at), credit.released);
    };
    ports.connect(directory, std::move(outbox));
    return ports;
  }

  /// The token of a micro-batch whose rows come from the sender.
  static MicroBatchPlan token(std::uint64_t sequence, std::uint32_t sender) {
    MicroBatchPlan plan;
    plan.section = SectionId(1);
    plan.samples = {{SampleId(sequence), 1}};
    plan.arrivals = {{edge, false, sequence, {{1, ReplicaIndex(sender), 0}}, 0}};
    return plan;
  }
  void take_and_release(ReplicaPorts& ports, const MicroBatchPlan& plan) {
    PieceHandOver piece;
    piece.sequence = plan.arrivals.front().sequence;
    piece.rows = 1;
    piece.buffer = buffers_.acquire();
    ASSERT_TRUE(ports.handed_over(piece, [](EdgeId, bool, std::uint64_t) {}).ok());
    ASSERT_TRUE(ports.release(plan).ok());
  }
  void expect(ReplicaPorts& ports, const MicroBatchPlan& plan) {
    ASSERT_TRUE(ports.expect(plan, [](EdgeId, bool, std::uint64_t) {}).ok());
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
       a_released_slot_is_told_to_the_sender_of_the_sequence_that_it_lets_in_and_to_no_other) {  // RP-3
  ReplicaPorts ports = receiver();
  const std::vector<std::uint32_t> sender_of = {0, 1, 2, 3, 1, 1};
  for (std::uint64_t sequence = 0; sequence < sender_of.size(); ++sequence) {
    expect(ports, token(sequence, sender_of[sequence]));
  }
  EXPECT_TRUE(credits_.empty());  // the ring is free for its first sequences without any
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
    take_and_release(ports, token(sequence, sender_of[sequence]));
  }
  EXPECT_EQ(credits_, (Credits{{2, 1}, {3, 2}, {1, 3}, {1, 4}}));
}

TEST_F(ReplicaPortsTest, a_slot_that_is_free_before_the_token_comes_is_told_when_it_does) {  // RP-3
  ReplicaPorts ports = receiver();
  expect(ports, token(0, 0));
  expect(ports, token(1, 1));
  take_and_release(ports, token(0, 0));
  EXPECT_TRUE(credits_.empty());  // nobody is known to wait
  expect(ports, token(2, 3));
  EXPECT_EQ(credits_, (Credits{{3, 1}}));
  expect(ports, token(3, 2));
  EXPECT_EQ(credits_.size(), 1U);  // the ring is full
  take_and_release(ports, token(1, 1));
  EXPECT_EQ(credits_, (Credits{{3, 1}, {2, 2}}));
}

TEST_F(ReplicaPortsTest, slots_released_out_of_order_are_told_once_with_the_prefix) {  // RP-3, CL-6
  ReplicaPorts ports = receiver();
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) expect(ports, token(sequence, sequence < 2 ? 0 : 2));
  take_and_release(ports, token(1, 0));
  EXPECT_TRUE(credits_.empty());
  take_and_release(ports, token(0, 0));
  EXPECT_EQ(credits_, (Credits{{2, 2}}));  // both of its sequences are let in by one credit
}

}  // namespace
}  // namespace maestro::testing
