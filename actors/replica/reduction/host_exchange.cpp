// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/host_exchange.hpp"

#include <algorithm>
#include <cstring>

namespace maestro {

HostExchange::HostExchange(HostExchangeOptions options, Network& network)
    : options_(std::move(options)),
      values_(options_.staging->values_of(options_.gradients)),
      network_(&network),
      links_({options_.members, options_.self, options_.kind, options_.layout_rank, options_.process, options_.client},
             network) {
  address_.parts_ring = links_.parts_ring();
  address_.sums_ring = links_.sums_ring();
  if (options_.wire.parts != GradientWire::f32) {
    slots_.emplace(options_.wire, values_.size(), options_.learned, members());
  }
  if (!options_.remote) return;
  parts_ = AlignedMemory(largest_part() * members());
  parts_region_ = network.register_memory(parts_.data(), parts_.size());
  gradient_region_ = network.register_memory(reinterpret_cast<std::byte*>(values_.data()), values_.size_bytes());
  if (parts_region_) address_.parts = parts_region_->remote();
  if (gradient_region_) address_.gradients = gradient_region_->remote();
  if (!slots_) return;
  slots_region_ = network.register_memory(slots_->memory().data(), slots_->memory().size());
  if (slots_region_) address_.sums = slots_region_->remote();
}

std::size_t HostExchange::largest_part() const {
  std::size_t largest = 0;
  for (std::size_t index = 0; index < members(); ++index) largest = std::max(largest, part_bytes(index));
  return largest;
}

std::vector<std::uint32_t> HostExchange::ring_numbers() const {
  return {address_.parts_ring, address_.sums_ring};
}

void HostExchange::connect(const Directory& directory, const ExchangeOutbox& outbox) {
  outbox_ = outbox;
  links_.connect(directory);
}

void HostExchange::begin(Operation operation) {
  operation_ = operation;
  if (!options_.staging->apart() || gathers()) return begin_on_host();
  state_ = State::to_host;
}

void HostExchange::begin_on_host() {
  if (!slots_ || operation_ == Operation::gather_values) return begin_round();
  state_ = State::encode;
}

void HostExchange::begin_round() {
  state_ = State::round;
  if (operation_ == Operation::gather_values) return release();  // continues the round of sum_to_shards
  rounds_.erase(round_++);
  round(round_).local_ready();
  for (std::size_t peer = 0; peer < members(); ++peer) {
    if (parts_go_to(peer)) send(peer, false);
  }
}

std::optional<LabelledJob> HostExchange::next_job() {
  if (work_ != Work::none || state_ == State::idle) return std::nullopt;
  if (state_ == State::to_host) return job_of(Work::to_host);
  if (state_ == State::encode) return job_of(Work::encode);
  if (current().may_sum()) return job_of(Work::sum);
  if (current().may_copy()) return job_of(Work::copy);
  if (round_over() && options_.staging->apart()) return job_of(Work::to_device);
  return std::nullopt;
}

LabelledJob HostExchange::job_of(Work work) {
  work_ = work;
  const auto job = [](std::string_view label, auto run) {
    return LabelledJob{label, [run = std::move(run)] {
                         run();
                         return WorkResult();
                       }};
  };
  switch (work) {
    case Work::to_host:
      return job("to host", [this] { options_.staging->copy_to_host(copied_to_host()); });
    case Work::encode:
      return job("encode", [this] { error_.add(slots_->encode_parts(values_, self())); });
    case Work::sum:
      return job("reduce", [this] { gathers() ? stage_moments() : sum_up(); });
    case Work::copy:
      return job("gather", [this] { copy_sums(); });
    case Work::to_device:
    case Work::none:
      break;
  }
  return job("to device", [this] { options_.staging->copy_to_device(copied_to_device()); });
}

std::span<float> HostExchange::copied_to_host() const {
  return operation_ == Operation::gather_values ? own_of(options_.gradients) : options_.gradients;
}

std::span<float> HostExchange::copied_to_device() const {
  return operation_ == Operation::sum_to_shards ? own_of(options_.gradients) : options_.gradients;
}

void HostExchange::job_done() {
  switch (std::exchange(work_, Work::none)) {
    case Work::none:
      return;
    case Work::to_host:
      return begin_on_host();
    case Work::encode:
      return begin_round();
    case Work::sum:
      round(round_).shard_summed();
      if (operation_ != Operation::sum_to_shards) release();
      return;
    case Work::copy:
      return release_reads();
    case Work::to_device:
      state_ = State::idle;
  }
}

bool HostExchange::round_over() const {
  return operation_ == Operation::sum_to_shards ? current().holds_sum() : current().complete();
}

bool HostExchange::complete() const {
  if (work_ != Work::none) return false;
  return state_ == State::idle || (state_ == State::round && !options_.staging->apart() && round_over());
}

std::size_t HostExchange::expected_parts() const {
  if (own().count == 0) return 0;
  if (gathers()) return self() == 0 ? 0 : 1;
  return members() - 1;
}

std::size_t HostExchange::expected_sums() const {
  if (gathers() && self() != 0) return 0;
  std::size_t sums = 0;
  for (std::size_t peer = 0; peer < members(); ++peer) sums += peer != self() && shard(peer).count > 0 ? 1 : 0;
  return sums;
}

ReductionRound& HostExchange::round(std::uint64_t number) {
  return rounds_.try_emplace(number, expected_parts(), expected_sums()).first->second;
}

void HostExchange::send(std::size_t index, bool sum) {
  const MemberLinks::Peer& peer = links_[index];
  const ShardRange range = shard(sum ? self() : index);
  if (range.count == 0) return;
  const std::size_t slot = sum ? self() : index;  // the shard that it belongs to
  const bool encoded = sum ? encodes_sums() : slots_.has_value();
  const std::size_t bytes = sum ? sum_bytes(slot) : part_bytes(slot);
  if (peer.local) {
    // A part is read before its sum returns; only the sum needs a receipt (HX-1).
    if (sum) round(round_).send_started();
    const std::span<const std::byte> whole = encoded ? std::as_bytes(slots_->slot(slot)).first(bytes)
                                                     : std::as_bytes(values_.subspan(range.first, range.count));
    return outbox_.hand_over(
        peer.actor, {options_.kind, round_, sum, static_cast<std::uint32_t>(self()), options_.layout_rank, whole});
  }
  WriteRequest request;
  request.local = encoded ? slots_region_.get() : gradient_region_.get();
  request.local_offset = encoded ? slots_->offset(slot) : range.first * sizeof(float);
  request.remote = !sum ? peer.address.parts : encoded ? peer.address.sums : peer.address.gradients;
  request.remote_offset = sum ? request.local_offset : self() * largest_part();
  request.bytes = bytes;
  if (gathers() && !sum) {  // an empty part comes from memory that no member writes
    request.local = parts_region_.get();
    request.local_offset = 0;
  }
  for (std::size_t chunks = links_.write(index, round_, sum, request); chunks > 0; --chunks)
    round(round_).send_started();
}

bool HostExchange::landed(std::uint32_t immediate) {
  const auto message = links_.landed(immediate, round_);
  if (!message) return false;
  if (!links_.complete(*message, message->sum ? sum_bytes(message->sender) : part_bytes(self()))) return true;
  if (message->sum) {
    round(message->round).sum_arrived();
  } else {
    round(message->round).part_arrived();
  }
  return true;
}

void HostExchange::handed_over(const ShardHandOver& shard) {
  auto& store = shard.sum ? handed_sums_ : handed_parts_;
  store[{shard.round, shard.sender}] = shard.bytes;
  if (shard.sum) {
    round(shard.round).sum_arrived();
  } else {
    round(shard.round).part_arrived();
  }
}

bool HostExchange::write_finished(std::uint64_t cookie) {
  const auto round = links_.finished(cookie);
  if (round) this->round(*round).send_done();
  return round.has_value();
}

void HostExchange::sum_up() {
  if (own().count == 0) return;
  add_parts();
  if (encodes_sums()) error_.add(slots_->encode_sum(own_of(values_), self()));
}

std::span<const float> HostExchange::part_of(std::size_t member, std::size_t first, std::span<float> room) const {
  const auto handed = handed_parts_.find({round_, member});
  const std::byte* bytes =
      handed != handed_parts_.end() ? handed->second.data() : parts_.data() + member * largest_part();
  if (!slots_) return {reinterpret_cast<const float*>(bytes) + first, room.size()};
  slots_->codec(self(), false).decode({bytes, part_bytes(self())}, first, room);
  return room;
}

void HostExchange::add_parts() {
  // RD-2: replica order on every member. Part 0 is the start value, so nothing depends on the rounding of zero.
  constexpr std::size_t block = std::size_t{64} << 10;  // the sum stays in a cache
  const std::span<float> mine = own_of(values_);
  std::vector<float> memory(2 * std::min(block, mine.size()));
  for (std::size_t first = 0; first < mine.size(); first += block) {
    const std::span<float> own = mine.subspan(first, std::min(block, mine.size() - first));
    const std::span<float> total = self() == 0 ? own : std::span(memory).first(own.size());
    const std::span<float> room = std::span(memory).last(own.size());
    if (self() != 0) std::ranges::copy(part_of(0, first, room), total.begin());
    for (std::size_t replica = 1; replica < members(); ++replica) {
      const std::span<const float> more =
          replica == self() ? std::span<const float>(own) : part_of(replica, first, room);
      options_.host_ops->run(AddInto{.into = total, .values = more});
    }
    if (self() != 0) std::ranges::copy(total, own.begin());
  }
}

void HostExchange::stage_moments() const {
  options_.stage_shard(operation_ == Operation::gather_first_moments ? ParameterBuffer::first_moments
                                                                     : ParameterBuffer::second_moments);
  if (options_.staging->apart()) options_.staging->copy_to_host(own_of(options_.gradients));
}

void HostExchange::release() {
  round(round_).shard_released();
  for (std::size_t peer = 0; peer < members(); ++peer) {
    if (sums_go_to(peer)) send(peer, true);
  }
}

void HostExchange::copy_sums() {
  for (std::size_t peer = 0; peer < members(); ++peer) {
    const auto handed = handed_sums_.find({round_, peer});
    const bool local = handed != handed_sums_.end();
    const std::span<float> into = values_.subspan(shard(peer).first, shard(peer).count);
    if (encodes_sums() && peer != self() && !into.empty()) {
      slots_->codec(peer, true).decode(local ? handed->second : slots_->slot(peer), 0, into);
    } else if (local) {
      std::memcpy(into.data(), handed->second.data(), handed->second.size());
    }
  }
}

void HostExchange::release_reads() {
  round(round_).sums_copied();
  for (std::size_t peer = 0; peer < members(); ++peer) {
    handed_parts_.erase({round_, peer});
    if (handed_sums_.erase({round_, peer}) == 0) continue;
    outbox_.shard_read(links_[peer].actor, ShardRead{options_.kind, round_, options_.layout_rank});
  }
}

}  // namespace maestro
