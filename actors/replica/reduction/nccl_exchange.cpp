// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/nccl_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace maestro {

/// The communicator is made and used on the device's thread; its failure() is asked for by completions of what was
/// used.
struct NcclExchange::Group {
  std::unique_ptr<Communicator> communicator;
  std::string peers;  ///< for errors: "section 'student' replica 1 (process 1)"
  [[nodiscard]] std::string error(const std::string& problem) const {
    return "exchange of gradients with " + peers + ": " + problem;
  }
};

NcclExchange::NcclExchange(NcclExchangeOptions options) : options_(std::move(options)) {
  if (!needed()) return;
  peers_.resize(options_.members.size());
  announced_.resize(options_.members.size());
  group_ = std::make_shared<Group>();
  if (options_.self != 0) return;
  const std::vector<std::byte> id = options_.backend->make_group_id();
  id_.resize(id.size());
  std::memcpy(id_.data(), id.data(), id.size());
}

std::string NcclExchange::name_of(const ReplicaAddress& member) const {
  return "section '" + options_.graph->node(member.section).name + "' replica " +
         std::to_string(member.replica.value()) + " (process " + std::to_string(member.rank.value()) + ")";
}

void NcclExchange::connect(const Directory& directory, Ready ready, Broken broken) {
  if (!needed()) return;
  ready_ = std::move(ready);
  const std::size_t address = options_.layout_rank * reduction_kinds + static_cast<std::size_t>(options_.kind);
  std::vector<std::uint8_t> id;
  for (const ProcessInfo& process : directory.processes) {
    for (const ReplicaAddress& replica : process.replicas) {
      const auto found = std::ranges::find(options_.members, ReductionMember{replica.section, replica.replica});
      if (found == options_.members.end()) continue;
      const auto member = static_cast<std::size_t>(found - options_.members.begin());
      peers_[member] = replica.actor;
      if (member == 0) id = replica.reductions.at(address).group;
      if (member != options_.self) group_->peers += (group_->peers.empty() ? "" : ", ") + name_of(replica);
    }
  }
  join(id, std::move(broken));
}

void NcclExchange::join(const std::vector<std::uint8_t>& id, Broken broken) const {
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

void NcclExchange::announce() {
  ++announced_[options_.self];
  const auto self = static_cast<std::uint32_t>(options_.self);
  for (std::size_t member = 0; member < peers_.size(); ++member) {
    if (member != options_.self) ready_(peers_[member], {options_.kind, options_.layout_rank, self});
  }
}

bool NcclExchange::may_exchange() const {
  const std::uint64_t own = announced_[options_.self];
  return std::ranges::all_of(announced_, [own](std::uint64_t count) { return count >= own; });
}

RankJob NcclExchange::job(Exchange exchange) const {
  return [group = group_, exchange = std::move(exchange)]() -> WorkResult {
    if (!group->communicator) throw ExchangeBroken(group->error("the group was not formed"));
    try {
      exchange(*group->communicator);
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
