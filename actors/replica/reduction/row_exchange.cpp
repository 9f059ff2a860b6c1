// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/row_exchange.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/ops/row_message.hpp"

namespace maestro {

namespace {

std::size_t rows_of_table(const Parameter& table) {
  return static_cast<std::size_t>(table.shape()[0]);
}
std::size_t columns_of_table(const Parameter& table) {
  return static_cast<std::size_t>(table.shape().columns());
}

}  // namespace

RowExchange::RowExchange(RowExchangeOptions options, Network& network)
    : options_(std::move(options)),
      network_(&network),
      links_(options_.links, network),
      outgoing_(options_.links.members.size()),
      owned_(options_.tables.size()) {
  address_.parts_ring = links_.parts_ring();
  address_.sums_ring = links_.sums_ring();
  if (!options_.remote) return;
  std::size_t sent = 0;
  for (const Parameter* table : options_.tables) {
    const TableSizes sizes{rows_of_table(*table), columns_of_table(*table),
                           static_cast<std::size_t>(table->rule().per_token)};
    const RowMessageBounds most(sizes, members(), options_.most_tokens);
    part_slot_ += most.gradients;
    stepped_slot_ += most.stepped;
    sent += most.all;
  }
  const auto make = [&](Room& room, std::size_t bytes) {
    room.memory = AlignedMemory(bytes);
    room.region = network.register_memory(room.memory.data(), room.memory.size());
  };
  make(sent_, sent);
  make(offered_, stepped_slot_);
  make(parts_, part_slot_ * members());
  make(stepped_, stepped_slot_ * members());
  if (parts_.region) address_.parts = parts_.region->remote();
  if (stepped_.region) address_.sums = stepped_.region->remote();
}

std::vector<std::uint32_t> RowExchange::ring_numbers() const {
  return {address_.parts_ring, address_.sums_ring};
}

void RowExchange::connect(const Directory& directory, const ExchangeOutbox& outbox) {
  outbox_ = outbox;
  links_.connect(directory);
}

void RowExchange::begin(Operation operation) {
  operation_ = operation;
  state_ = operation == Operation::sum_to_shards ? State::collect : State::offer;
}

std::optional<LabelledJob> RowExchange::next_job() {
  if (work_ != Work::none || state_ == State::idle) return std::nullopt;
  const auto job = [this](Work work, std::string_view label, auto run) {
    work_ = work;
    return LabelledJob{label, [run = std::move(run)] {
                         run();
                         return WorkResult();
                       }};
  };
  if (state_ == State::collect) return job(Work::collect, "collect rows", [this] { collect(); });
  if (state_ == State::offer) return job(Work::offer, "collect rows", [this] { offer(); });
  if (current().may_sum()) {
    return job(Work::merge, "merge rows", [this, all = messages(false, outgoing_[self()])] { merge(all); });
  }
  if (current().may_copy()) return job(Work::load, "load rows", [this, all = messages(true, {})] { load(all); });
  return std::nullopt;
}

void RowExchange::job_done() {
  switch (std::exchange(work_, Work::none)) {
    case Work::none:
      return;
    case Work::collect:
      return begin_round();
    case Work::merge:
      return round(round_).shard_summed();
    case Work::offer:
      return release();
    case Work::load:
      return release_reads();
  }
}

bool RowExchange::complete() const {
  if (work_ != Work::none || state_ == State::collect || state_ == State::offer) return false;
  if (state_ == State::idle) return true;
  return operation_ == Operation::sum_to_shards ? current().holds_sum() : current().complete();
}

ReductionRound& RowExchange::round(std::uint64_t number) {
  return rounds_.try_emplace(number, members() - 1, members() - 1).first->second;
}

void RowExchange::begin_round() {
  state_ = State::round;
  rounds_.erase(round_++);
  arrived_.erase(arrived_.begin(), arrived_.lower_bound({round_, 0, false}));  // of a skipped step
  round(round_).local_ready();
  for (std::size_t member = 0; member < members(); ++member) {
    if (member != self()) send(member, false, outgoing_[member]);
  }
}

void RowExchange::release() {
  state_ = State::round;
  round(round_).shard_released();
  for (std::size_t member = 0; member < members(); ++member) {
    if (member != self()) send(member, true, offer_);
  }
}

void RowExchange::release_reads() {
  round(round_).sums_copied();
  for (std::size_t member = 0; member < members(); ++member) {
    if (member == self() || !links_[member].local) continue;
    outbox_.shard_read(links_[member].actor, ShardRead{ReductionKind::rows, round_, options_.links.layout_rank});
  }
}

void RowExchange::send(std::size_t member, bool stepped, Bytes message) {
  const MemberLinks::Peer& peer = links_[member];
  const auto own = static_cast<std::uint32_t>(self());
  const LayoutRank rank = options_.links.layout_rank;
  if (peer.local) {
    // Gradients are read before the stepped rows return; only these need a receipt (HX-1).
    if (stepped) round(round_).send_started();
    return outbox_.hand_over(peer.actor, {ReductionKind::rows, round_, stepped, own, rank, message});
  }
  outbox_.rows_sent(peer.actor, RowsSent{rank, round_, stepped, own, message.size()});
  const Room& room = stepped ? offered_ : sent_;
  WriteRequest request;
  request.local = room.region.get();
  request.local_offset = static_cast<std::size_t>(message.data() - room.memory.data());
  request.remote = stepped ? peer.address.sums : peer.address.parts;
  request.remote_offset = self() * (stepped ? stepped_slot_ : part_slot_);
  request.bytes = message.size();
  for (std::size_t chunks = links_.write(member, round_, stepped, request); chunks > 0; --chunks) {
    round(round_).send_started();
  }
}

void RowExchange::arrived(const Message& message, Bytes bytes) {
  arrived_[message] = bytes;
  if (message.sum) {
    round(message.round).sum_arrived();
  } else {
    round(message.round).part_arrived();
  }
}

void RowExchange::check_arrival(const Message& message) {
  const auto announced = announced_.find(message);
  if (announced == announced_.end() || !links_.complete(message, announced->second)) return;
  const std::byte* const slot = message.sum ? stepped_.memory.data() + message.sender * stepped_slot_
                                            : parts_.memory.data() + message.sender * part_slot_;
  arrived(message, {slot, announced->second});
  announced_.erase(announced);
}

bool RowExchange::landed(std::uint32_t immediate) {
  const auto message = links_.landed(immediate, round_);
  if (message) check_arrival(*message);
  return message.has_value();
}

void RowExchange::rows_sent(const RowsSent& sent) {
  const Message message{sent.round, sent.member, sent.stepped};
  announced_[message] = sent.bytes;
  check_arrival(message);
}

void RowExchange::handed_over(const ShardHandOver& shard) {
  arrived({shard.round, shard.sender, shard.sum}, shard.bytes);
}

bool RowExchange::write_finished(std::uint64_t cookie) {
  const auto finished = links_.finished(cookie);
  if (finished) round(*finished).send_done();
  return finished.has_value();
}

std::vector<RowExchange::Bytes> RowExchange::messages(bool stepped, Bytes kept) const {
  std::vector<Bytes> all(members(), kept);
  for (std::size_t member = 0; member < members(); ++member) {
    if (member != self()) all[member] = arrived_.at({round_, member, stepped});
  }
  return all;
}

std::byte* RowExchange::fit(Room& room, std::size_t bytes) const {
  if (bytes > room.memory.size()) {
    if (options_.remote) {
      throw std::logic_error("a step has read more rows of a table than its samples have tokens x rule.per_token");
    }
    room.memory = AlignedMemory(bytes);
  }
  return room.memory.data();
}

void RowExchange::collect() {
  // Row ranges of the owners, by table and then by owner.
  std::vector<std::vector<std::size_t>> ends;
  std::size_t bytes = 0;
  for (const Parameter* table : options_.tables) {
    const std::vector<std::int32_t>& ids = table->row_gradients()->merged().ids;
    ends.emplace_back();
    for (std::size_t owner = 0; owner < members(); ++owner) {
      const ShardRange range = shard_range(rows_of_table(*table), members(), owner);
      const auto end = std::ranges::lower_bound(ids, static_cast<std::int64_t>(range.first + range.count));
      ends.back().push_back(static_cast<std::size_t>(end - ids.begin()));
    }
    bytes += 4 * (members() - 1) + row_block_bytes(ids.size(), columns_of_table(*table), false);
  }
  std::byte* next = fit(sent_, bytes);
  for (std::size_t owner = 0; owner < members(); ++owner) {
    std::byte* const first = next;
    for (std::size_t at = 0; at < options_.tables.size(); ++at) {
      const std::size_t begin = owner == 0 ? 0 : ends[at][owner - 1];
      next = write_gradients(options_.tables[at]->row_gradients()->merged(), begin, ends[at][owner], next);
    }
    outgoing_[owner] = {first, next};
  }
}

void RowExchange::merge(const std::vector<Bytes>& parts) {
  for (const Parameter* table : options_.tables) {
    table->row_gradients()->clear();
    if (table->rule().average) table->row_gradients()->average_over(members());
  }
  for (std::uint32_t member = 0; member < members(); ++member) {
    Bytes left = parts[member];
    for (const Parameter* table : options_.tables) {
      const std::size_t columns = columns_of_table(*table);
      const RowBlock block = take_block(left, columns, false);
      if (block.ids.empty()) continue;
      const Shape shape{std::ssize(block.ids), static_cast<std::int64_t>(columns)};
      table->row_gradients()->begin(member);
      table->row_gradients()->add(block.ids, ConstTensor(block.rows.data(), DType::f32, shape));
    }
  }
  for (std::size_t at = 0; at < owned_.size(); ++at) owned_[at] = options_.tables[at]->row_gradients()->merged().ids;
}

void RowExchange::offer() {
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < owned_.size(); ++at) {
    bytes += row_block_bytes(owned_[at].size(), columns_of_table(*options_.tables[at]), true);
  }
  std::byte* const first = fit(offered_, bytes);
  std::byte* next = first;
  for (std::size_t at = 0; at < owned_.size(); ++at) {
    const Parameter& table = *options_.tables[at];
    next = write_stepped(owned_[at], table.value(), table.row_sums(), next);
  }
  offer_ = {first, next};
}

void RowExchange::load(const std::vector<Bytes>& stepped) const {
  for (std::size_t member = 0; member < members(); ++member) {
    Bytes left = stepped[member];
    for (std::size_t at = 0; at < options_.tables.size() && member != self(); ++at) {
      const Parameter& table = *options_.tables[at];
      load_stepped(take_block(left, columns_of_table(table), true), table.value(), table.row_sums());
    }
  }
}

}  // namespace maestro
