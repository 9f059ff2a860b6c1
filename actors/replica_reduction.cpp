#include "actors/replica_reduction.hpp"

#include <algorithm>
#include <cstring>

#include "transport/chunk_plan.hpp"
#include "transport/immediate.hpp"

namespace maestro {

ReplicaReduction::ReplicaReduction(const ReplicaReductionOptions& options, Network& network)
    : options_(options),
      network_(&network),
      // Apart from the ports' cookies of the same client, and from those of the rank's other reduction.
      next_cookie_(std::uint64_t{options.tie ? 3U : 2U} << 38) {
  if (!needed()) return;
  address_.parts_ring = network.next_ring();
  address_.sums_ring = network.next_ring();
  peers_.resize(replicas());
  if (!options_.remote) return;
  parts_ = AlignedMemory(largest_shard() * sizeof(float) * replicas());
  parts_region_ = network.register_memory(parts_.data(), parts_.size());
  gradient_region_ =
      network.register_memory(reinterpret_cast<std::byte*>(options_.gradients.data()), options_.gradients.size_bytes());
  if (parts_region_) address_.parts = parts_region_->remote();
  if (gradient_region_) address_.gradients = gradient_region_->remote();
}

std::size_t ReplicaReduction::largest_shard() const {
  std::size_t largest = 0;
  for (std::size_t index = 0; index < replicas(); ++index) largest = std::max(largest, shard(index).count);
  return largest;
}

std::vector<std::uint32_t> ReplicaReduction::ring_numbers() const {
  if (!needed()) return {};
  return {address_.parts_ring, address_.sums_ring};
}

void ReplicaReduction::connect(const Directory& directory, Deliver deliver) {
  deliver_ = std::move(deliver);
  for (const ProcessHello& process : directory.processes) {
    for (const ReplicaAddress& peer : process.replicas) {
      const auto member =
          std::ranges::find(options_.members, ReplicaReductionOptions::Member{peer.section, peer.replica});
      if (!needed() || member == options_.members.end()) continue;
      const bool local = peer.rank == options_.rank && !network_->options().force_rma;
      const auto& addresses = options_.tie ? peer.ties : peer.reductions;
      peers_[static_cast<std::size_t>(member - options_.members.begin())] = {
          peer.actor, addresses.at(options_.layout_rank), peer.rank, local};
    }
  }
}

ShardedReduction& ReplicaReduction::round(StepId step) {
  std::size_t sums = 0;
  for (std::size_t peer = 0; peer < replicas(); ++peer) sums += peer != self() && shard(peer).count > 0 ? 1 : 0;
  return rounds_.try_emplace(step, own().count > 0 ? replicas() - 1 : 0, sums).first->second;
}

StepId ReplicaReduction::full_step(std::uint16_t wrapped) const {
  return StepId(unwrap_sequence(wrapped, step_.value()));
}

void ReplicaReduction::begin(StepId step) {
  step_ = step;
  active_ = true;
  round(step).local_ready();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer != self()) send(peer, false, shard(peer));
  }
}

void ReplicaReduction::send(std::size_t index, bool sum, ShardRange range) {
  const Peer& peer = peers_[index];
  if (range.count == 0) return;
  if (peer.local) {
    // A part is read before its sum comes back; only the sum needs a receipt (RR-1).
    if (sum) round(step_).send_started();
    deliver_(peer.actor, {step_, sum, options_.tie, static_cast<std::uint32_t>(self()), options_.layout_rank,
                          options_.gradients.subspan(range.first, range.count)});
    return;
  }
  const std::size_t offset = range.first * sizeof(float);
  const std::size_t target = sum ? offset : self() * largest_shard() * sizeof(float);
  for (const Chunk chunk : ChunkPlan(range.count * sizeof(float), network_->options().chunk_bytes)) {
    WriteRequest request;
    request.local = gradient_region_.get();
    request.local_offset = offset + chunk.offset;
    request.bytes = chunk.bytes;
    request.remote = sum ? peer.address.gradients : peer.address.parts;
    request.remote_offset = target + chunk.offset;
    request.immediate = pack({EdgeId(sum ? peer.address.sums_ring : peer.address.parts_ring),
                              static_cast<std::uint32_t>(self()), wrap_sequence(step_.value())});
    request.cookie = std::uint64_t{options_.client} << Network::client_shift | next_cookie_++;
    writes_[request.cookie] = step_;
    round(step_).send_started();
    network_->write(peer.rank, request);
  }
}

bool ReplicaReduction::landed(std::uint32_t immediate) {
  const Immediate where = unpack_immediate(immediate);
  const bool sum = where.edge.value() == address_.sums_ring;
  if (!needed() || (!sum && where.edge.value() != address_.parts_ring)) return false;
  const StepId step = full_step(where.sequence);
  const std::size_t count = sum ? shard(where.slot).count : own().count;
  const std::size_t wanted = chunk_count(count * sizeof(float), network_->options().chunk_bytes);
  if (++landed_chunks_[{step, where.slot * 2 + (sum ? 1 : 0)}] < wanted) return true;
  landed_chunks_.erase({step, where.slot * 2 + (sum ? 1 : 0)});
  if (sum) {
    round(step).sum_arrived();
  } else {
    round(step).part_arrived();
  }
  return true;
}

void ReplicaReduction::handed_over(const ShardHandOver& shard) {
  auto& store = shard.sum ? handed_sums_ : handed_parts_;
  store[{shard.step, shard.sender}] = shard.values;
  if (shard.sum) {
    round(shard.step).sum_arrived();
  } else {
    round(shard.step).part_arrived();
  }
}

bool ReplicaReduction::write_finished(std::uint64_t cookie) {
  const auto found = writes_.find(cookie);
  if (found == writes_.end()) return false;
  round(found->second).send_done();
  writes_.erase(found);
  return true;
}

void ReplicaReduction::sum(const OperatorTable& ops) {
  // SR-2: replica order, whatever the own place in it. Part 0 is the start value, so nothing depends on rounding of
  // zero.
  const ShardRange range = own();
  const std::span<float> mine = options_.gradients.subspan(range.first, range.count);
  const auto part = [&](std::size_t replica) -> std::span<const float> {
    const auto handed = handed_parts_.find({step_, replica});
    if (handed != handed_parts_.end()) return handed->second;
    const auto* begin = reinterpret_cast<const float*>(parts_.data()) + replica * largest_shard();
    return {begin, range.count};
  };
  if (mine.empty()) return;
  if (self() == 0) {
    for (std::size_t replica = 1; replica < replicas(); ++replica) ops.add_into(mine, part(replica));
    return;
  }
  std::vector<float> total(part(0).begin(), part(0).end());
  for (std::size_t replica = 1; replica < replicas(); ++replica) {
    ops.add_into(total, replica == self() ? std::span<const float>(mine) : part(replica));
  }
  std::copy(total.begin(), total.end(), mine.begin());
}

void ReplicaReduction::summed() {
  round(step_).shard_summed();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer != self()) send(peer, true, own());
  }
}

void ReplicaReduction::copy_sums() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const auto handed = handed_sums_.find({step_, peer});
    if (handed == handed_sums_.end()) continue;
    std::copy(handed->second.begin(), handed->second.end(),
              options_.gradients.begin() + static_cast<std::ptrdiff_t>(shard(peer).first));
  }
}

void ReplicaReduction::copied(const std::function<void(const caf::actor&, ShardRead)>& tell_read) {
  round(step_).sums_copied();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    handed_parts_.erase({step_, peer});
    if (handed_sums_.erase({step_, peer}) > 0)
      tell_read(peers_[peer].actor, ShardRead{step_, options_.tie, options_.layout_rank});
  }
}

void ReplicaReduction::finish() {
  rounds_.erase(step_);
  active_ = false;
}

}  // namespace maestro
