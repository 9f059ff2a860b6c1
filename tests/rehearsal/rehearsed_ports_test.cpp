// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_ports.hpp"

#include <gmock/gmock.h>

#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A "teacher" that sends to a "student" through two slots. The text, section 0, is left out.
class RehearsedPortsTest : public ::testing::Test {
 protected:
  RehearsedPortsTest() : graph_(testing::distillation_graph()), edge_(*teacher_edge()) {}

  std::optional<EdgeId> teacher_edge() const { return graph_.outputs(teacher_.section).front(); }
  RehearsedPorts ports(TransferTime takes) {
    RehearsedPortsOptions options;
    options.graph = &graph_;
    options.limits = {2, 8, 0};
    options.transfer = [takes](const LaneKey&, const LaneKey&, Channel, std::int64_t) { return takes; };
    options.arrived = [this](const LaneKey&, Channel, std::uint64_t sequence, LayoutRank) {
      arrived_.emplace_back(sequence, clock_.now_ms());
    };
    options.freed = [this](const LaneKey& lane) { freed_ += lane == teacher_ ? 1 : 0; };
    return {clock_, std::move(options)};
  }
  [[nodiscard]] MicroBatchPlan sends(std::uint64_t sequence) const {
    MicroBatchPlan batch;
    batch.section = teacher_.section;
    PieceOut piece;
    piece.channel = {edge_};
    piece.sequence = sequence;
    piece.rows = 4;
    batch.pieces = {piece};
    return batch;
  }
  [[nodiscard]] MicroBatchPlan receives(std::uint64_t sequence, std::size_t pieces = 1) const {
    MicroBatchPlan batch;
    batch.section = student_.section;
    batch.arrivals = {{{edge_}, sequence, std::vector<ArrivalPiece>(pieces)}};
    return batch;
  }
  void pass(RehearsedPorts& ports, std::uint64_t sequence) {
    ports.acquire(sends(sequence), true, false);
    ports.send(sends(sequence));
  }
  void run() {
    while (clock_.next()) {
    }
  }

  SectionGraph graph_;
  const LaneKey teacher_{SectionId(1), ReplicaIndex(0)};
  const LaneKey student_{SectionId(2), ReplicaIndex(0)};
  EdgeId edge_;
  VirtualClock clock_;
  std::vector<std::pair<std::uint64_t, double>> arrived_;
  int freed_ = 0;
};

TEST_F(RehearsedPortsTest, pieces_beyond_the_window_wait_for_a_release) {  // PV-1
  RehearsedPorts at = ports({1, false});
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    at.expect(receives(sequence));
    pass(at, sequence);
  }
  run();
  EXPECT_THAT(arrived_, ElementsAre(std::pair(0, 1.0), std::pair(1, 1.0)));
  at.release(receives(0));
  run();
  EXPECT_THAT(arrived_.back(), ::testing::Pair(2, 3.0));  // the credit also takes 1 ms
}

TEST_F(RehearsedPortsTest,
       a_written_piece_frees_its_block_when_sent_and_one_by_reference_at_its_release) {  // PV-2
  {
    RehearsedPorts written = ports({5, false, 2});
    written.expect(receives(0));
    pass(written, 0);
    clock_.next();
    EXPECT_EQ(freed_, 1);
    EXPECT_EQ(clock_.now_ms(), 2);
    EXPECT_THAT(arrived_, IsEmpty());
    run();
    EXPECT_THAT(arrived_, ElementsAre(std::pair(0, 5.0)));
  }
  arrived_.clear();
  RehearsedPorts handed = ports({0, true});
  handed.expect(receives(0));
  pass(handed, 0);
  run();
  EXPECT_EQ(arrived_.size(), 1u);
  EXPECT_EQ(freed_, 1);
  handed.release(receives(0));
  EXPECT_EQ(freed_, 2);
}

TEST_F(RehearsedPortsTest, a_pass_needs_a_free_block) {  // PV-2
  RehearsedPorts at = ports({1, false});
  std::uint64_t sequence = 0;
  while (at.free(teacher_).outputs) pass(at, sequence++);
  EXPECT_EQ(sequence, static_cast<std::uint64_t>(send_blocks(graph_, teacher_.section, {2, 8, 0})));
  EXPECT_TRUE(at.free(student_).outputs) << "blocks belong to a lane";
  run();
  EXPECT_TRUE(at.free(teacher_).outputs) << "those within the window have left";
}

TEST_F(RehearsedPortsTest, a_sequence_is_complete_with_its_last_piece_also_before_it_was_announced) {
  RehearsedPorts at = ports({0, true});
  pass(at, 0);
  run();
  EXPECT_THAT(arrived_, IsEmpty());
  at.expect(receives(0, 2));
  EXPECT_THAT(arrived_, IsEmpty());
  pass(at, 0);
  run();
  EXPECT_EQ(arrived_.size(), 1u);
  at.expect(receives(1, 0));  // without rows nothing arrives
  EXPECT_EQ(arrived_.size(), 2u);
}

TEST_F(RehearsedPortsTest, may_end_with_pieces_on_their_way) {
  VirtualClock clock;
  RehearsedPortsOptions options;
  options.graph = &graph_;
  options.limits = {2, 8, 0};
  options.transfer = [](const LaneKey&, const LaneKey&, Channel, std::int64_t) { return TransferTime{1, false}; };
  RehearsedPorts at(clock, std::move(options));
  pass(at, 0);
}

}  // namespace
}  // namespace maestro
