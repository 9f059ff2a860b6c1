// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/member_links.hpp"

#include <algorithm>

#include "actors/services/write_cookie.hpp"
#include "transport/ring/chunk_plan.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

MemberLinks::MemberLinks(MemberLinksOptions options, Network& network)
    : options_(std::move(options)),
      network_(&network),
      parts_ring_(network.next_ring()),
      sums_ring_(network.next_ring()),
      peers_(options_.members.size()) {}

void MemberLinks::connect(const Directory& directory) {
  for (const ReplicaAddress& peer : directory.replicas()) {
    const auto member = std::ranges::find(options_.members, ReductionMember{peer.section, peer.replica});
    if (member == options_.members.end()) continue;
    const bool local = peer.process == options_.process && !network_->options().force_rma;
    peers_[static_cast<std::size_t>(member - options_.members.begin())] = {
        peer.actor, peer.reduction(options_.layout_rank, options_.kind), peer.process, local};
  }
}

void MemberLinks::leave() {
  for (Peer& peer : peers_) peer.actor = nullptr;
}

std::size_t MemberLinks::write(std::size_t member, std::uint64_t round, bool sum, const WriteRequest& all) {
  const Peer& peer = peers_[member];
  const ChunkPlan chunks(all.bytes, network_->options().chunk_bytes);
  for (const Chunk chunk : chunks) {
    WriteRequest request = all;
    request.local_offset += chunk.offset;
    request.remote_offset += chunk.offset;
    request.bytes = chunk.bytes;
    request.immediate = pack({EdgeId(sum ? peer.address.sums_ring : peer.address.parts_ring),
                              static_cast<std::uint32_t>(options_.self), wrap_sequence(round)});
    request.cookie = pack_cookie({options_.client, options_.kind, next_number_++});
    writes_[request.cookie] = round;
    network_->write(peer.process, request);
  }
  return chunks.size();
}

std::optional<std::uint64_t> MemberLinks::finished(std::uint64_t cookie) {
  const auto write = writes_.extract(cookie);
  return write ? std::optional(write.mapped()) : std::nullopt;
}

std::optional<MemberLinks::Message> MemberLinks::landed(std::uint32_t immediate, std::uint64_t round) {
  const Immediate where = unpack_immediate(immediate);
  const bool sum = where.edge.value() == sums_ring_;
  if (!sum && where.edge.value() != parts_ring_) return std::nullopt;
  const Message message{unwrap_sequence(where.sequence, round), where.slot, sum};
  ++landed_[message];
  return message;
}

bool MemberLinks::complete(const Message& message, std::size_t bytes) {
  const auto found = landed_.find(message);
  if (found == landed_.end() || found->second < chunk_count(bytes, network_->options().chunk_bytes)) return false;
  landed_.erase(found);
  return true;
}

}  // namespace maestro
