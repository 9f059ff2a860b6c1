// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/rank_exchanges.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/replica/reduction/host_exchange.hpp"
#include "actors/replica/reduction/nccl_exchange.hpp"
#include "actors/replica/reduction/row_exchange.hpp"
#include "actors/replica/replica_spec.hpp"

namespace maestro {

namespace {

/// Members of an exchange.
struct Membership {
  std::vector<ReductionMember> members;  ///< empty: no exchange
  std::size_t self = 0;
  bool in_group = false;
  [[nodiscard]] bool by_host() const { return !members.empty() && !in_group; }
};

Membership among(const ReplicaSpec& spec, LayoutRank rank, std::vector<ReductionMember> members, std::size_t self) {
  const bool groups = spec.groups.places != nullptr && !spec.network->options().force_rma;
  const bool in_group = groups && on_devices_of_their_own(*spec.groups.places, members, rank);
  return {std::move(members), self, in_group};
}

Membership among_replicas(const ReplicaSpec& spec, LayoutRank rank) {
  const GraphNode& node = spec.graph->node(spec.section);
  const bool alone = node.replicas == 1 || spec.ranks[rank.value()].runner->gradients().empty();
  if (!node.trained() || alone || !node.exchanges(rank.value())) return {};  // RX-2
  Membership members = among(spec, rank, replicas_of(*spec.graph, spec.section), spec.replica.value());
  members.in_group = members.in_group && node.gradient_wire == GradientWire::f32;  // groups send f32
  return members;
}

/// Returns the replica's first and last stage, which hold the tied parameter.
Membership among_stages(const ReplicaSpec& spec, LayoutRank rank) {
  const GraphNode& node = spec.graph->node(spec.section);
  if (!node.trained() || node.stages == 1 || spec.ranks[rank.value()].runner->tied() == nullptr) return {};
  return among(spec, rank, end_stages_of(*spec.graph, spec.section, spec.replica), node.stage == 0 ? 0 : 1);
}

/// Returns the replicas that share the optimizer state; nothing on a rank whose state lower ranks hold (RX-1, first
/// holders).
Membership for_moments(const ReplicaSpec& spec, LayoutRank rank) {
  const Layout& layout = spec.graph->node(spec.section).layout;
  const bool shares = spec.ranks[rank.value()].runner->section().parameters().optimizer_sharded();
  return shares && rank.value() < layout.holders() ? among_replicas(spec, rank) : Membership();
}

std::span<float> tied_gradient_of(const ReplicaSpec& spec, LayoutRank rank) {
  const Parameter* tied = spec.ranks[rank.value()].runner->tied();
  return tied == nullptr || !tied->trained() ? std::span<float>() : tied->gradient().span<float>();
}

std::span<float> gradients_of(const ReplicaSpec& spec, LayoutRank rank, ReductionKind kind) {
  if (kind == ReductionKind::tie) return tied_gradient_of(spec, rank);
  return spec.ranks[rank.value()].runner->gradients();
}

WireFormats wire_of(const ReplicaSpec& spec, LayoutRank rank, ReductionKind kind) {
  if (kind != ReductionKind::replicas) return {};
  const bool sharded = spec.ranks[rank.value()].runner->section().parameters().optimizer_sharded();
  return wire_formats(spec.graph->node(spec.section).gradient_wire, sharded);
}

/// Returns the gradients that some exchange moves through host memory.
std::span<float> staged_gradients(const ReplicaSpec& spec, LayoutRank rank) {
  for (const auto& [membership, kind] : {std::pair(among_replicas(spec, rank), ReductionKind::replicas),
                                         std::pair(among_stages(spec, rank), ReductionKind::tie)}) {
    if (membership.by_host()) return gradients_of(spec, rank, kind);
  }
  return {};
}

std::function<void(ParameterBuffer)> stage_shard_of(const ReplicaSpec& spec, LayoutRank rank) {
  return [runner = spec.ranks[rank.value()].runner](ParameterBuffer which) {
    runner->section().parameters().stage_shard(*runner->context().ops, which);
  };
}

std::unique_ptr<Exchange> make_in_group(const ReplicaSpec& spec, LayoutRank rank, ReductionKind kind,
                                        Membership membership) {
  NcclExchangeOptions options;
  options.graph = spec.graph;
  options.members = std::move(membership.members);
  options.self = membership.self;
  options.kind = kind;
  options.layout_rank = rank;
  options.gradients = gradients_of(spec, rank, kind);
  options.stage_shard = stage_shard_of(spec, rank);
  options.device = spec.ranks[rank.value()].device;
  options.backend = spec.backend;
  options.end = spec.groups.end;
  return std::make_unique<NcclExchange>(std::move(options));
}

/// Returns the exchange of a kind; null for moments if the replicas form a group, which also exchanges moments.
std::unique_ptr<Exchange> make_exchange(const ReplicaSpec& spec, LayoutRank rank, std::uint32_t client,
                                        ReductionKind kind, Membership membership, const GradientStaging& staging) {
  if (membership.members.empty()) return nullptr;
  if (membership.in_group && kind == ReductionKind::moments) return nullptr;
  if (membership.in_group) return make_in_group(spec, rank, kind, std::move(membership));
  HostExchangeOptions options;
  options.members = std::move(membership.members);
  options.self = membership.self;
  options.kind = kind;
  options.layout_rank = rank;
  options.process = spec.process;
  options.gradients = gradients_of(spec, rank, kind);
  options.staging = &staging;
  options.stage_shard = stage_shard_of(spec, rank);
  options.host_ops = spec.host_ops;
  options.wire = wire_of(spec, rank, kind);
  options.learned = spec.ranks[rank.value()].runner->section().parameters().learned_elements();
  options.remote = spec.remote;
  options.client = client;
  return std::make_unique<HostExchange>(std::move(options), *spec.network);
}

/// Returns the exchange of the rank's tables that are trained by rows; null without tables or other replicas.
std::unique_ptr<Exchange> make_row_exchange(const ReplicaSpec& spec, LayoutRank rank, std::uint32_t client) {
  const GraphNode& node = spec.graph->node(spec.section);
  RowExchangeOptions options;
  options.tables = spec.ranks[rank.value()].runner->section().parameters().row_tables();
  if (options.tables.empty() || node.replicas == 1) return nullptr;
  options.links = {
      replicas_of(*spec.graph, spec.section), spec.replica.value(), ReductionKind::rows, rank, spec.process, client};
  options.most_tokens = spec.largest.rows(node.axis()) * spec.limits.train_samples;
  options.remote = spec.remote;
  return std::make_unique<RowExchange>(std::move(options), *spec.network);
}

}  // namespace

RankExchanges::RankExchanges(const ReplicaSpec& spec, LayoutRank rank, std::uint32_t client)
    : staging_(spec.ranks[rank.value()].device->ops(), staged_gradients(spec, rank)) {
  const Membership moments = for_moments(spec, rank);
  const auto make = [&](ReductionKind kind, Membership membership) {
    exchanges_.at(static_cast<std::size_t>(kind)) =
        make_exchange(spec, rank, client, kind, std::move(membership), staging_);
  };
  make(ReductionKind::replicas, among_replicas(spec, rank));
  make(ReductionKind::tie, among_stages(spec, rank));
  make(ReductionKind::moments, moments);
  exchanges_.at(static_cast<std::size_t>(ReductionKind::rows)) = make_row_exchange(spec, rank, client);
  if (!moments.members.empty()) moments_ = at(moments.in_group ? ReductionKind::replicas : ReductionKind::moments);
}

std::vector<ReductionAddress> RankExchanges::addresses() const {
  std::vector<ReductionAddress> addresses;
  for (const auto& exchange : exchanges_) {
    addresses.push_back(exchange == nullptr ? ReductionAddress() : exchange->address());
  }
  return addresses;
}

std::vector<std::uint32_t> RankExchanges::ring_numbers() const {
  std::vector<std::uint32_t> rings;
  for (const auto& exchange : exchanges_) {
    if (exchange != nullptr) std::ranges::copy(exchange->ring_numbers(), back_inserter(rings));
  }
  return rings;
}

void RankExchanges::connect(const Directory& directory, const ExchangeOutbox& outbox) {
  // DG-3: groups of ties first
  for (const ReductionKind kind :
       {ReductionKind::tie, ReductionKind::replicas, ReductionKind::moments, ReductionKind::rows}) {
    if (at(kind) != nullptr) at(kind)->connect(directory, outbox);
  }
}

void RankExchanges::leave() {
  for (const auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->leave();
  }
}

bool RankExchanges::landed(std::uint32_t immediate) {
  return std::ranges::any_of(exchanges_, [&](const auto& each) { return each != nullptr && each->landed(immediate); });
}

bool RankExchanges::write_finished(std::uint64_t cookie) {
  return std::ranges::any_of(exchanges_,
                             [&](const auto& each) { return each != nullptr && each->write_finished(cookie); });
}

WireError RankExchanges::take_wire_error() {
  Exchange* const replicas = at(ReductionKind::replicas);
  return replicas == nullptr ? WireError() : replicas->take_wire_error();
}

void RankExchanges::begin(StepAction action) {
  const auto run = [this](Exchange* exchange, Operation operation) {
    current_ = exchange;
    if (exchange != nullptr) exchange->begin(operation);
  };
  switch (action) {
    case StepAction::exchange_tie:
      return run(at(ReductionKind::tie), Operation::sum);
    case StepAction::sum:
      return run(at(ReductionKind::replicas), Operation::sum);
    case StepAction::sum_to_shards:
      return run(at(ReductionKind::replicas), Operation::sum_to_shards);
    case StepAction::gather_values:
      return run(at(ReductionKind::replicas), Operation::gather_values);
    case StepAction::merge_rows:
      return run(at(ReductionKind::rows), Operation::sum_to_shards);
    case StepAction::gather_rows:
      return run(at(ReductionKind::rows), Operation::gather_values);
    case StepAction::gather_first_moments:
      return run(moments_, Operation::gather_first_moments);
    case StepAction::gather_second_moments:
      return run(moments_, Operation::gather_second_moments);
    default:
      assert(!is_exchange(action));
  }
}

std::optional<LabelledJob> RankExchanges::next_job() {
  return current_ == nullptr ? std::nullopt : current_->next_job();
}

void RankExchanges::job_done() {
  if (current_ != nullptr) current_->job_done();
}

}  // namespace maestro
