// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/weights/weight_receiver.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/core/result.hpp"
#include "sections/weight_version.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

namespace {

InputRingSpec ring_of(const ReplicaSpec& spec) {
  InputRingSpec ring;
  ring.channel = spec.graph->weights_channel(spec.section);
  ring.receiver = spec.replica;
  ring.ring = spec.network->next_ring();
  ring.slots = static_cast<std::uint32_t>(std::max<std::int64_t>(spec.weights.staleness, 1));
  std::int64_t pieces = 0;
  for (const GraphRegister& each : spec.graph->registers()) {
    if (each.to != spec.section) continue;
    const GraphNode& sender = spec.graph->node(each.from);
    pieces += sender.layout.holders() * sender.replicas;
  }
  ring.max_pieces = static_cast<std::uint32_t>(pieces);
  ring.max_rows = 0;
  for (const auto& [name, elements] : weight_elements(spec.ranks.at(0).runner->section())) ring.max_rows += elements;
  ring.dtype = spec.weights.dtype;
  ring.chunk_bytes = spec.network->options().chunk_bytes;
  ring.epoch = spec.epoch;
  if (spec.remote) check_immediate_limits(std::uint64_t{ring.ring} + 1, ring.slots).or_throw();
  return ring;
}

}  // namespace

WeightReceiver::WeightReceiver(const ReplicaSpec& spec, const caf::actor& self)
    : spec_(&spec), ring_(std::make_unique<InputRing>(ring_of(spec))) {
  if (spec.remote) region_ = spec.network->register_memory(ring_->memory(), ring_->memory_bytes());
  spec.network->route_ring(ring_->spec().ring, self);
}

RingAddress WeightReceiver::address() const {
  RingAddress address;
  address.channel = ring_->spec().channel;
  address.receiver = spec_->replica;
  address.ring = ring_->spec().ring;
  address.slots = ring_->spec().slots;
  address.max_pieces = ring_->spec().max_pieces;
  address.payload_bytes = ring_->layout().payload_bytes();
  address.released = ring_->released();
  if (region_) address.region = region_->remote();
  return address;
}

void WeightReceiver::connect(const Directory& directory, WeightOutbox outbox) {
  outbox_ = std::move(outbox);
  senders_.clear();
  std::vector<WeightBlock> blocks;
  for (const GraphRegister& each : spec_->graph->registers()) {
    if (each.to != spec_->section) continue;
    for (const ReplicaAddress& peer : directory.replicas()) {
      if (peer.section != each.from) continue;
      senders_.push_back(peer.actor);
      if (peer.replica == ReplicaIndex(0)) std::ranges::copy(peer.weights, std::back_inserter(blocks));
    }
  }
  VersionMap map(std::move(blocks));
  map.require(weight_elements(spec_->ranks.at(0).runner->section()));
  map_ = std::make_shared<const VersionMap>(std::move(map));
  ask();
}

void WeightReceiver::begin(StepId first) {
  first_ = first;
  ask();
}

void WeightReceiver::ask() {
  if (!first_ || !map_) return;
  expect().or_throw();
  VersionsWanted wanted{spec_->section, spec_->replica, spec_->process, ring_->spec().epoch, *first_, address()};
  for (const caf::actor& sender : senders_) outbox_.wanted(sender, wanted);
}

Status WeightReceiver::expect() {
  for (; expected_ < ring_->window_end(); ++expected_) {
    ArrivalPlan arrival;
    arrival.channel = ring_->spec().channel;
    arrival.sequence = expected_;
    for (const WeightPiece& piece : map_->pieces())
      arrival.pieces.push_back({piece.own.count, piece.replica, piece.rank});
    const Result<bool> complete = ring_->expect(arrival, StepId(first_->value() + expected_));
    if (!complete) return complete.error();
    if (*complete) complete_.push_back(expected_);
  }
  return {};
}

Status WeightReceiver::landed(std::uint32_t immediate) {
  std::uint64_t sequence = 0;
  const Result<bool> complete = ring_->landed(immediate, sequence);
  if (!complete) return complete.error();
  if (*complete) complete_.push_back(sequence);
  return release();
}

Status WeightReceiver::handed_over(const PieceHandOver& piece) {
  if (piece.epoch != ring_->spec().epoch) return {};
  const Result<bool> complete =
      ring_->handed_over(piece.sequence, {piece.buffer, piece.offset, piece.index, piece.target_row, piece.rows});
  if (!complete) return complete.error();
  if (*complete) complete_.push_back(piece.sequence);
  return release();
}

bool WeightReceiver::complete(StepId version) const {
  return first_ && std::ranges::find(complete_, sequence_of(version)) != complete_.end();
}

Result<ArrivedTensor> WeightReceiver::open(StepId version) {
  return ring_->open(sequence_of(version));
}

Status WeightReceiver::release_before(StepId version) {
  if (first_ && version > *first_) unread_ = std::max(unread_, sequence_of(version));
  return release();
}

Status WeightReceiver::release() {
  const std::uint64_t released = ring_->released();
  for (auto at = complete_.begin(); at != complete_.end();) {
    if (*at >= unread_) {
      ++at;
      continue;
    }
    const Result<bool> freed = ring_->release(*at);
    if (!freed) return freed.error();
    at = complete_.erase(at);
  }
  if (ring_->released() == released) return {};
  if (Status expected = expect(); !expected) return expected;
  const Credit credit{ring_->spec().channel, spec_->replica, LayoutRank(0), ring_->spec().epoch.value(),
                      ring_->released()};
  for (const caf::actor& sender : senders_) outbox_.credit(sender, credit);
  return {};
}

}  // namespace maestro
