// SPDX-License-Identifier: Apache-2.0
// The announced work of repeatable sections (SectionGraph::repeatable), and the part of it that is done again after
// these sections have lost a process or moved: all their replicas begin anew, with empty rings, while other sections
// keep what has arrived in theirs. Pure; belongs to the coordinator.
//
// FR-1 (nothing missing): after again() every sequence of another section's ring that was announced and is not complete
//       there is sent once by each of its senders; a complete sequence is not sent.
// FR-2 (least work): a micro-batch is done again only if its end was not reported, or if a sequence needs it, directly
//       or through repeatable sections.
// FR-3 (dense sequences): in rings of repeatable sections the sequences after again() count from 0, in the order of the
//       announcements, without a gap.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// The sequences that a ring holds or has held: all below `released`, and `complete` ones.
struct RingArrivals {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;
  std::uint64_t released = 0;
  std::vector<std::uint64_t> complete;
};

/// Not thread-safe.
class ForwardReplay {
 public:
  /// `graph` must outlive the object.
  explicit ForwardReplay(const SectionGraph& graph) : graph_(&graph), repeatable_(graph.repeatable()) {}

  [[nodiscard]] bool repeatable(SectionId section) const { return repeatable_[section.value()]; }
  /// Records a planned micro-batch of a repeatable section, and returns it as its lane receives it (FR-3).
  MicroBatchPlan announced(const MicroBatchPlan& planned);
  /// Records the reported end of a micro-batch. Returns false if it was reported before, or if the record of its step
  /// is dropped.
  bool done(SectionId section, StepId step, Pass pass, std::uint32_t index);
  /// Drops the record of a step whose consumers are all done.
  void closed(StepId step, Pass pass);
  /// Starts all replicas of repeatable sections anew. Returns the micro-batches to announce to them again, in their
  /// original order. `arrivals`: the arrivals in every other section's ring that a repeatable section sends to.
  std::vector<MicroBatchPlan> again(const std::vector<RingArrivals>& arrivals);

 private:
  using Ring = std::pair<Channel, ReplicaIndex>;                             // ring of a receiver, all its ranks
  using Needs = std::set<std::tuple<Channel, ReplicaIndex, std::uint64_t>>;  // sequences of repeatable sections
  class Arrived;
  struct Announced {
    MicroBatchPlan planned;
    bool done = false;
  };
  /// Micro-batches of a step, as announced.
  struct Step {
    std::vector<Announced> announced;
    std::map<std::pair<SectionId, std::uint32_t>, std::size_t> places;  // by section and index
  };
  [[nodiscard]] bool inside(const PieceOut& piece) const { return repeatable(graph_->receiver(piece.channel)); }
  /// Returns the micro-batches that are done again, with the pieces that are sent again, in planned numbers.
  std::vector<MicroBatchPlan> select(const Arrived& arrived) const;
  void renumber(MicroBatchPlan& batch) const;

  const SectionGraph* graph_;
  std::vector<bool> repeatable_;
  std::map<std::pair<StepId, Pass>, Step> steps_;  // steps that are not closed
  std::map<Ring, std::uint64_t> next_;             // planned number of the next sequence
  std::map<Ring, std::uint64_t> shift_;            // planned number minus the lane's number, since the last again()
};

}  // namespace maestro
