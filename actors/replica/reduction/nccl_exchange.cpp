// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/nccl_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace maestro {

namespace {

void queue(Communicator& members, Operation operation, std::span<float> gradients,
           const std::function<void(ParameterBuffer)>& stage_shard) {
  switch (operation) {
    case Operation::sum:
      return members.all_reduce_sum(gradients);
    case Operation::sum_to_shards:
      return members.reduce_to_shards(gradients);
    case Operation::gather_values:
      break;
    case Operation::gather_first_moments:
      stage_shard(ParameterBuffer::first_moments);
      break;
    case Operation::gather_second_moments:
      stage_shard(ParameterBuffer::second_moments);
  }
  members.gather_shards(gradients);
}

}  // namespace

/// The group's communicator, which the device's thread makes and uses; completions of its work query its failure().
struct NcclExchange::Group {
  std::unique_ptr<Communicator> communicator;
  std::string peers;  ///< for errors: "section 'student' replica 1 (process 1)"
  [[nodiscard]] std::string error(const std::string& problem) const {
    return "exchange of gradients with " + peers + ": " + problem;
  }
};

NcclExchange::NcclExchange(NcclExchangeOptions options)
    : options_(std::move(options)),
      peers_(options_.members.size()),
      announced_(options_.members.size()),
      group_(std::make_shared<Group>()) {
  if (options_.self != 0) return;
  const std::vector<std::byte> id = options_.backend->make_group_id();
  id_.resize(id.size());
  std::memcpy(id_.data(), id.data(), id.size());
}

ReductionAddress NcclExchange::address() const {
  ReductionAddress address;
  address.group = id_;
  return address;
}

std::string NcclExchange::name_of(const ReplicaAddress& member) const {
  return "section '" + options_.graph->node(member.section).name + "' replica " +
         std::to_string(member.replica.value()) + " (process " + std::to_string(member.process.value()) + ")";
}

void NcclExchange::connect(const Directory& directory, const ExchangeOutbox& outbox) {
  ready_ = outbox.ready;
  std::vector<std::uint8_t> id;
  for (const ReplicaAddress& replica : directory.replicas()) {
    const auto found = std::ranges::find(options_.members, ReductionMember{replica.section, replica.replica});
    if (found == options_.members.end()) continue;
    const auto member = static_cast<std::size_t>(found - options_.members.begin());
    peers_[member] = replica.actor;
    if (member == 0) id = replica.reduction(options_.layout_rank, options_.kind).group;
    if (member != options_.self) group_->peers += (group_->peers.empty() ? "" : ", ") + name_of(replica);
  }
  join(id, outbox.broken);
}

void NcclExchange::join(const std::vector<std::uint8_t>& id, std::function<void(const std::string&)> broken) const {
  GroupRank rank;
  rank.id.resize(id.size());
  std::memcpy(rank.id.data(), id.data(), id.size());
  rank.size = static_cast<std::int64_t>(options_.members.size());
  rank.rank = static_cast<std::int64_t>(options_.self);
  rank.abort = options_.end;
  options_.device->submit(Priority::critical, [group = group_, backend = options_.backend, device = options_.device,
                                               rank = std::move(rank), broken = std::move(broken)] {
    try {
      group->communicator = backend->join(*device, rank);
    } catch (const std::exception& problem) {
      broken(group->error(problem.what()));  // DG-4
    }
  });
}

void NcclExchange::begin(Operation operation) {
  operation_ = operation;
  state_ = State::announced;
  ++announced_[options_.self];
  const auto self = static_cast<std::uint32_t>(options_.self);
  for (std::size_t member = 0; member < peers_.size(); ++member) {
    if (member != options_.self) ready_(peers_[member], {options_.kind, options_.layout_rank, self});
  }
}

bool NcclExchange::all_announced() const {
  const std::uint64_t own = announced_[options_.self];
  return std::ranges::all_of(announced_, [own](std::uint64_t count) { return count >= own; });
}

std::optional<LabelledJob> NcclExchange::next_job() {
  if (state_ != State::announced || !all_announced()) return std::nullopt;
  state_ = State::queued;
  const bool sums = operation_ == Operation::sum || operation_ == Operation::sum_to_shards;
  return LabelledJob{sums ? "reduce" : "gather", job()};
}

void NcclExchange::job_done() {
  if (state_ == State::queued) state_ = State::idle;
}

RankJob NcclExchange::job() const {
  return [group = group_, operation = operation_, gradients = options_.gradients,
          stage_shard = options_.stage_shard]() -> WorkResult {
    if (!group->communicator) throw ExchangeBroken(group->error("the group was not formed"));
    try {
      queue(*group->communicator, operation, gradients, stage_shard);
    } catch (const std::runtime_error& problem) {
      throw ExchangeBroken(group->error(problem.what()));  // DG-4
    }
    return WorkResult::of_exchange([group] {
      const std::string failure = group->communicator->failure();
      return failure.empty() ? failure : group->error(failure);
    });
  };
}

}  // namespace maestro
