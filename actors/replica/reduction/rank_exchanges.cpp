// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/rank_exchanges.hpp"

#include <algorithm>

#include "actors/replica/replica_spec.hpp"

namespace maestro {

namespace {

/// A rank's place in the reductions of one kind.
struct Place {
  std::vector<ReductionMember> members;  // empty: nothing to do
  std::size_t self = 0;
  bool in_group = false;
};

bool wants_groups(const ReplicaSpec& spec) {
  return spec.groups.places != nullptr && !spec.network->options().force_rma;
}

Place found_place(const ReplicaSpec& spec, std::uint32_t rank, std::vector<ReductionMember> members, std::size_t self) {
  const bool in_group = wants_groups(spec) && on_devices_of_their_own(*spec.groups.places, members, rank);
  return {std::move(members), self, in_group};
}

Place among_replicas(const ReplicaSpec& spec, std::uint32_t rank) {
  const GraphNode& node = spec.graph->node(spec.section);
  const bool alone = node.replicas == 1 || spec.ranks[rank].runner->section().parameters().gradients().empty();
  if (!node.trained() || alone) return {};
  return found_place(spec, rank, replicas_of(*spec.graph, spec.section), spec.replica.value());
}

/// Of the first and the last stage of a section that hold one parameter: its gradients are added up replica by replica.
Place among_stages(const ReplicaSpec& spec, std::uint32_t rank) {
  const GraphNode& node = spec.graph->node(spec.section);
  if (!node.trained() || node.stages == 1 || spec.ranks[rank].runner->section().tied() == nullptr) return {};
  return found_place(spec, rank, end_stages_of(*spec.graph, spec.section, spec.replica), node.stage == 0 ? 0 : 1);
}

/// Of replicas that share their moments, for a checkpoint. Context parts hold the same: the first one is enough.
Place for_moments(const ReplicaSpec& spec, std::uint32_t rank) {
  const Layout& layout = spec.graph->node(spec.section).layout;
  const bool shares = spec.ranks[rank].runner->section().parameters().optimizer_sharded();
  return shares && layout.context_of(rank) == 0 ? among_replicas(spec, rank) : Place();
}

Place place_of(const ReplicaSpec& spec, std::uint32_t rank, ReductionKind kind) {
  switch (kind) {
    case ReductionKind::replicas:
      return among_replicas(spec, rank);
    case ReductionKind::tie:
      return among_stages(spec, rank);
    case ReductionKind::moments:
      break;
  }
  return for_moments(spec, rank);
}

NcclExchangeOptions group_options(const ReplicaSpec& spec, std::uint32_t rank, ReductionKind kind) {
  NcclExchangeOptions options;
  Place place = place_of(spec, rank, kind);
  options.graph = spec.graph;
  if (place.in_group) options.members = std::move(place.members);
  options.self = place.self;
  options.kind = kind;
  options.layout_rank = rank;
  options.device = spec.ranks[rank].device;
  options.backend = spec.backend;
  options.end = spec.groups.end;
  return options;
}

std::span<float> tied_gradient_of(const ReplicaSpec& spec, std::uint32_t rank) {
  const Parameter* tied = spec.ranks[rank].runner->section().tied();
  return tied == nullptr || !tied->trained() ? std::span<float>() : tied->gradient().span<float>();
}

/// Those that some reduction takes through host memory.
std::span<float> mirrored_gradients(const ReplicaSpec& spec, std::uint32_t rank) {
  const auto by_host = [](const Place& place) { return !place.members.empty() && !place.in_group; };
  if (by_host(among_replicas(spec, rank))) return spec.ranks[rank].runner->section().parameters().gradients();
  return by_host(among_stages(spec, rank)) ? tied_gradient_of(spec, rank) : std::span<float>();
}

HostExchangeOptions host_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client, ReductionKind kind,
                                 const GradientStaging& mirror) {
  HostExchangeOptions options;
  Place place = place_of(spec, rank, kind);
  if (place.in_group || place.members.empty()) return options;
  options.members = std::move(place.members);
  options.self = place.self;
  options.kind = kind;
  const Parameters& parameters = spec.ranks[rank].runner->section().parameters();
  options.held = kind == ReductionKind::replicas && parameters.optimizer_sharded();
  options.layout_rank = rank;
  options.rank = spec.rank;
  options.remote = spec.remote;
  options.client = client;
  options.gradients = kind == ReductionKind::tie ? mirror.values_of(tied_gradient_of(spec, rank)) : mirror.values();
  return options;
}

}  // namespace

RankExchanges::RankExchanges(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client)
    : spec_(&spec),
      runner_(spec.ranks[rank].runner),
      replicas_(group_options(spec, rank, ReductionKind::replicas)),
      tie_(group_options(spec, rank, ReductionKind::tie)),
      mirror_(spec.ranks[rank].device->ops(), mirrored_gradients(spec, rank)),
      by_host_{HostExchange(host_options(spec, rank, client, ReductionKind::replicas, mirror_), *spec.network),
               HostExchange(host_options(spec, rank, client, ReductionKind::tie, mirror_), *spec.network),
               HostExchange(host_options(spec, rank, client, ReductionKind::moments, mirror_), *spec.network)},
      gathers_(!for_moments(spec, rank).members.empty()) {}

Parameters& RankExchanges::parameters() const {
  return runner_->section().parameters();
}

std::span<float> RankExchanges::tied_gradient() const {
  return runner_->section().tied()->gradient().span<float>();
}

std::vector<ReductionAddress> RankExchanges::addresses() const {
  std::vector<ReductionAddress> addresses;
  for (const HostExchange& reduction : by_host_) addresses.push_back(reduction.address());
  addresses[static_cast<std::size_t>(ReductionKind::replicas)].group = replicas_.id();
  addresses[static_cast<std::size_t>(ReductionKind::tie)].group = tie_.id();
  return addresses;
}

std::vector<std::uint32_t> RankExchanges::ring_numbers() const {
  std::vector<std::uint32_t> rings;
  for (const HostExchange& reduction : by_host_) std::ranges::copy(reduction.ring_numbers(), back_inserter(rings));
  return rings;
}

void RankExchanges::connect(const Directory& directory, const ReductionOutbox& outbox) {
  for (HostExchange& reduction : by_host_) reduction.connect(directory, outbox.deliver);
  tie_.connect(directory, outbox.ready, outbox.broken);  // DG-3
  replicas_.connect(directory, outbox.ready, outbox.broken);
}

void RankExchanges::leave() {
  for (HostExchange& reduction : by_host_) reduction.leave();
  tie_.leave();
  replicas_.leave();
}

bool RankExchanges::landed(std::uint32_t immediate) {
  return std::ranges::any_of(by_host_, [&](HostExchange& reduction) { return reduction.landed(immediate); });
}

bool RankExchanges::write_finished(std::uint64_t cookie) {
  return std::ranges::any_of(by_host_, [&](HostExchange& reduction) { return reduction.write_finished(cookie); });
}

void RankExchanges::ready(const ReductionReady& message) {
  (message.kind == ReductionKind::tie ? tie_ : replicas_).announced(message.member);
}

NcclExchange* RankExchanges::group_of(ReductionKind kind) {
  NcclExchange& group = kind == ReductionKind::tie ? tie_ : replicas_;
  const bool takes_part = kind != ReductionKind::moments || gathers_;
  return group.needed() && takes_part ? &group : nullptr;
}

void RankExchanges::begin(ReductionKind kind) {
  at_ = kind;
  holding_ = false;
  state_ = State::none;
  if (!needed(kind)) return;
  if (NcclExchange* group = group_of(kind)) {
    state_ = State::announced;
    return group->announce();
  }
  // Moments are offered when they are asked for; gradients are as they are now.
  if (mirror_.apart() && kind != ReductionKind::moments) {
    state_ = State::leaving;
    return;
  }
  state_ = State::moving;
  by_host(kind).begin();
}

void RankExchanges::begin() {
  begin(needed(ReductionKind::tie) ? ReductionKind::tie : ReductionKind::replicas);
}

void RankExchanges::begin_distribution() {
  if (state_ == State::moving) return by_host(at_).release();
  if (state_ != State::held) return;
  NcclExchange* const group = group_of(at_);
  state_ = group != nullptr ? State::announced : State::leaving;
  if (group != nullptr) group->announce();
}

void RankExchanges::begin_gather(ParameterBuffer which) {
  offered_ = which;
  begin(ReductionKind::moments);
}

RankExchanges::Work RankExchanges::handed_out(Doing doing, std::string_view label, RankJob job) {
  state_ = State::working;
  doing_ = doing;
  return {label, std::move(job)};
}

std::optional<RankExchanges::Work> RankExchanges::work() {
  switch (state_) {
    case State::announced:
      if (!group_of(at_)->may_exchange()) return std::nullopt;
      return handed_out(Doing::exchange, holding_ || at_ == ReductionKind::moments ? "gather" : "reduce",
                        exchange_job());
    case State::leaving:
      return handed_out(Doing::copy_to_host, "to host", copy_job(Doing::copy_to_host));
    case State::returning:
      return handed_out(Doing::copy_to_device, "to device", copy_job(Doing::copy_to_device));
    case State::moving:
      break;
    case State::none:
    case State::held:
    case State::working:
      return std::nullopt;
  }
  HostExchange& now = by_host(at_);
  if (now.may_sum()) return handed_out(Doing::sum, "reduce", sum_job());
  if (!now.may_copy()) return std::nullopt;
  return handed_out(Doing::copy, "gather", [&now] {
    now.copy_sums();
    return WorkDone();
  });
}

RankJob RankExchanges::exchange_job() {
  NcclExchange& group = *group_of(at_);
  switch (at_) {
    case ReductionKind::tie:
      return group.job([values = tied_gradient()](Communicator& ranks) { ranks.all_reduce_sum(values); });
    case ReductionKind::moments:
      return group.job([runner = runner_, which = offered_](Communicator& ranks) {
        Parameters& parameters = runner->section().parameters();
        parameters.stage_shard(*runner->context().ops, which);
        ranks.gather_shards(parameters.gradients());
      });
    case ReductionKind::replicas:
      break;
  }
  // The shards of a group are those of Parameters::shard_optimizer_state(): both are shard_range() of all gradients.
  return group.job([values = parameters().gradients(), shares = parameters().optimizer_sharded(),
                    stepped = holding_](Communicator& ranks) {
    if (!shares) return ranks.all_reduce_sum(values);
    return stepped ? ranks.gather_shards(values) : ranks.reduce_to_shards(values);
  });
}

RankJob RankExchanges::sum_job() {
  if (at_ == ReductionKind::moments) {
    return [this, runner = runner_, which = offered_] {
      Parameters& parameters = runner->section().parameters();
      parameters.stage_shard(*runner->context().ops, which);
      const ShardRange kept = parameters.kept_moments();
      if (mirror_.apart()) mirror_.copy_to_host(parameters.gradients().subspan(kept.first, kept.count));
      return WorkDone();
    };
  }
  return [this, &now = by_host(at_)] {
    now.sum(*spec_->host_ops);
    return WorkDone();
  };
}

std::span<float> RankExchanges::moved() const {
  const std::span<float> gradients = parameters().gradients();
  const ShardRange kept = parameters().kept_moments();
  if (holding_) return gradients.subspan(kept.first, kept.count);
  return at_ == ReductionKind::tie ? tied_gradient() : gradients;
}

RankJob RankExchanges::copy_job(Doing doing) {
  return [this, doing, part = moved()] {
    if (doing == Doing::copy_to_host) {
      mirror_.copy_to_host(part);
    } else {
      mirror_.copy_to_device(part);
    }
    return WorkDone();
  };
}

void RankExchanges::worked(const TellRead& tell_read) {
  if (state_ != State::working) return;
  state_ = State::moving;
  switch (doing_) {
    case Doing::exchange:
      return exchanged();
    case Doing::copy_to_host:
      return taken_out();
    case Doing::sum:
      return by_host(at_).summed();
    case Doing::copy:
      return by_host(at_).copied(tell_read);
    case Doing::copy_to_device:
      return copy_to_device();
  }
}

void RankExchanges::exchanged() {
  const bool summed = at_ == ReductionKind::replicas && parameters().optimizer_sharded() && !holding_;
  holding_ = summed;
  if (!summed) return finish();
  state_ = State::held;  // RX-2
}

void RankExchanges::taken_out() {
  if (std::exchange(holding_, false)) return by_host(at_).release();
  by_host(at_).begin();
}

void RankExchanges::copy_to_device() {
  if (!holding_) return finish();
  state_ = State::held;
}

void RankExchanges::finish() {
  if (group_of(at_) == nullptr) by_host(at_).finish();
  state_ = State::none;
  if (at_ == ReductionKind::tie) begin(ReductionKind::replicas);
}

bool RankExchanges::done() {
  if (state_ == State::none || state_ == State::held) return true;  // held: until begin_distribution()
  if (state_ != State::moving) return false;
  const bool holds = by_host(at_).holds_sum();
  if (!holds && !by_host(at_).complete()) return false;
  if (mirror_.apart()) {
    holding_ = holds;
    state_ = State::returning;
    return false;
  }
  if (holds) return true;
  finish();
  return done();
}

}  // namespace maestro
