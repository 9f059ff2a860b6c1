// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/forward_replay.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace maestro {

/// Rings of other sections.
class ForwardReplay::Arrived {
 public:
  explicit Arrived(const std::vector<RingArrivals>& arrivals) {
    for (const RingArrivals& ring : arrivals) rings_[{ring.channel, ring.receiver, ring.layout_rank}] = &ring;
  }
  /// Returns whether a piece has arrived; rings that are not listed are empty.
  [[nodiscard]] bool has(const PieceOut& piece) const {
    const auto found = rings_.find({piece.channel, piece.receiver, piece.target_rank});
    if (found == rings_.end()) return false;
    const RingArrivals& ring = *found->second;
    return piece.sequence < ring.released || std::ranges::find(ring.complete, piece.sequence) != ring.complete.end();
  }

 private:
  std::map<std::tuple<Channel, ReplicaIndex, LayoutRank>, const RingArrivals*> rings_;
};

MicroBatchPlan ForwardReplay::announced(const MicroBatchPlan& planned) {
  Step& step = steps_[{planned.step, planned.pass}];
  step.places[{planned.section, planned.index}] = step.announced.size();
  step.announced.push_back({planned});
  for (const ArrivalPlan& arrival : planned.arrivals) {
    std::uint64_t& next = next_[{arrival.channel, planned.replica}];
    next = std::max(next, arrival.sequence + 1);
  }
  MicroBatchPlan sent = planned;
  renumber(sent);
  return sent;
}

bool ForwardReplay::done(SectionId section, StepId step, Pass pass, std::uint32_t index) {
  const auto found = steps_.find({step, pass});
  if (found == steps_.end()) return false;
  return !std::exchange(found->second.announced[found->second.places.at({section, index})].done, true);
}

void ForwardReplay::closed(StepId step, Pass pass) {
  steps_.erase({step, pass});
}

void ForwardReplay::renumber(MicroBatchPlan& batch) const {
  const auto shift = [this](Channel channel, ReplicaIndex receiver) {
    const auto found = shift_.find({channel, receiver});
    return found == shift_.end() ? 0 : found->second;
  };
  for (ArrivalPlan& arrival : batch.arrivals) arrival.sequence -= shift(arrival.channel, batch.replica);
  for (PieceOut& piece : batch.pieces) {
    if (inside(piece)) piece.sequence -= shift(piece.channel, piece.receiver);
  }
}

std::vector<MicroBatchPlan> ForwardReplay::select(const Arrived& arrived) const {
  std::vector<const Announced*> all;
  for (const auto& [key, step] : steps_) {
    for (const Announced& announced : step.announced) all.push_back(&announced);
  }
  const std::vector<SectionId> order = graph_->topological();
  std::vector<std::size_t> rank(order.size());
  for (std::size_t at = 0; at < order.size(); ++at) rank[order[at].value()] = at;
  std::vector<std::size_t> consumers_first(all.size());
  std::iota(consumers_first.begin(), consumers_first.end(), std::size_t{0});
  std::ranges::stable_sort(consumers_first, std::greater(),
                           [&](std::size_t at) { return rank[all[at]->planned.section.value()]; });
  Needs needed;
  const auto sent_again = [&](const PieceOut& piece) {
    return inside(piece) ? needed.contains({piece.channel, piece.receiver, piece.sequence}) : !arrived.has(piece);
  };
  std::vector<std::vector<PieceOut>> pieces(all.size());
  const auto repeats = [&](std::size_t at) { return !pieces[at].empty() || !all[at]->done; };
  for (const std::size_t at : consumers_first) {
    const MicroBatchPlan& batch = all[at]->planned;
    std::ranges::copy_if(batch.pieces, std::back_inserter(pieces[at]), sent_again);
    if (!repeats(at)) continue;
    for (const ArrivalPlan& arrival : batch.arrivals) needed.insert({arrival.channel, batch.replica, arrival.sequence});
  }
  std::vector<MicroBatchPlan> selected;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (!repeats(at)) continue;
    selected.push_back(all[at]->planned);
    selected.back().pieces = std::move(pieces[at]);
  }
  return selected;
}

std::vector<MicroBatchPlan> ForwardReplay::again(const std::vector<RingArrivals>& arrivals) {
  std::vector<MicroBatchPlan> repeated = select(Arrived(arrivals));
  std::map<Ring, std::map<std::uint64_t, std::uint64_t>> numbers;  // by planned number
  for (const MicroBatchPlan& batch : repeated) {
    for (const ArrivalPlan& arrival : batch.arrivals) numbers[{arrival.channel, batch.replica}][arrival.sequence] = 0;
  }
  for (auto& [ring, of_ring] : numbers) {
    std::uint64_t next = 0;
    for (auto& [planned, number] : of_ring) number = next++;
  }
  for (MicroBatchPlan& batch : repeated) {
    for (ArrivalPlan& arrival : batch.arrivals) {
      arrival.sequence = numbers.at({arrival.channel, batch.replica}).at(arrival.sequence);
    }
    for (PieceOut& piece : batch.pieces) {
      if (inside(piece)) piece.sequence = numbers.at({piece.channel, piece.receiver}).at(piece.sequence);
    }
  }
  for (const auto& [ring, next] : next_) {
    const auto found = numbers.find(ring);
    shift_[ring] = next - (found == numbers.end() ? 0 : found->second.size());
  }
  return repeated;
}

}  // namespace maestro
