// SPDX-License-Identifier: Apache-2.0
#include "actors/rank_reductions.hpp"

#include <algorithm>

#include "actors/replica_rank.hpp"

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
  const bool shares = spec.ranks[rank].runner->section().parameters().shares_moments();
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

GroupReductionOptions group_options(const ReplicaSpec& spec, std::uint32_t rank, ReductionKind kind) {
  GroupReductionOptions options;
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

/// Those that some reduction takes through memory of the processor.
std::span<float> mirrored_gradients(const ReplicaSpec& spec, std::uint32_t rank) {
  const auto by_host = [](const Place& place) { return !place.members.empty() && !place.in_group; };
  if (by_host(among_replicas(spec, rank))) return spec.ranks[rank].runner->section().parameters().gradients();
  return by_host(among_stages(spec, rank)) ? tied_gradient_of(spec, rank) : std::span<float>();
}

ReplicaReductionOptions host_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client,
                                     ReductionKind kind, const GradientMirror& mirror) {
  ReplicaReductionOptions options;
  Place place = place_of(spec, rank, kind);
  if (place.in_group || place.members.empty()) return options;
  options.members = std::move(place.members);
  options.self = place.self;
  options.kind = kind;
  const Parameters& parameters = spec.ranks[rank].runner->section().parameters();
  options.held = kind == ReductionKind::replicas && parameters.shares_moments();
  options.layout_rank = rank;
  options.rank = spec.rank;
  options.remote = spec.remote;
  options.client = client;
  options.gradients = kind == ReductionKind::tie ? mirror.values_of(tied_gradient_of(spec, rank)) : mirror.values();
  return options;
}

}  // namespace

RankReductions::RankReductions(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client)
    : spec_(&spec),
      runner_(spec.ranks[rank].runner),
      replicas_(group_options(spec, rank, ReductionKind::replicas)),
      tie_(group_options(spec, rank, ReductionKind::tie)),
      mirror_(spec.ranks[rank].device->ops(), mirrored_gradients(spec, rank)),
      by_host_{ReplicaReduction(host_options(spec, rank, client, ReductionKind::replicas, mirror_), *spec.network),
               ReplicaReduction(host_options(spec, rank, client, ReductionKind::tie, mirror_), *spec.network),
               ReplicaReduction(host_options(spec, rank, client, ReductionKind::moments, mirror_), *spec.network)},
      gathers_(!for_moments(spec, rank).members.empty()) {}

Parameters& RankReductions::parameters() const {
  return runner_->section().parameters();
}

std::span<float> RankReductions::tied_gradient() const {
  return runner_->section().tied()->gradient().span<float>();
}

std::vector<ReductionAddress> RankReductions::addresses() const {
  std::vector<ReductionAddress> addresses;
  for (const ReplicaReduction& reduction : by_host_) addresses.push_back(reduction.address());
  addresses[static_cast<std::size_t>(ReductionKind::replicas)].group = replicas_.id();
  addresses[static_cast<std::size_t>(ReductionKind::tie)].group = tie_.id();
  return addresses;
}

std::vector<std::uint32_t> RankReductions::ring_numbers() const {
  std::vector<std::uint32_t> rings;
  for (const ReplicaReduction& reduction : by_host_) std::ranges::copy(reduction.ring_numbers(), back_inserter(rings));
  return rings;
}

void RankReductions::connect(const Directory& directory, const ReductionOutbox& outbox) {
  for (ReplicaReduction& reduction : by_host_) reduction.connect(directory, outbox.deliver);
  tie_.connect(directory, outbox.ready, outbox.broken);  // DG-3
  replicas_.connect(directory, outbox.ready, outbox.broken);
}

void RankReductions::leave() {
  tie_.leave();
  replicas_.leave();
}

bool RankReductions::landed(std::uint32_t immediate) {
  return std::ranges::any_of(by_host_, [&](ReplicaReduction& reduction) { return reduction.landed(immediate); });
}

bool RankReductions::write_finished(std::uint64_t cookie) {
  return std::ranges::any_of(by_host_, [&](ReplicaReduction& reduction) { return reduction.write_finished(cookie); });
}

void RankReductions::ready(const ReductionReady& message) {
  (message.kind == ReductionKind::tie ? tie_ : replicas_).announced(message.member);
}

GroupReduction* RankReductions::group_of(ReductionKind kind) {
  GroupReduction& group = kind == ReductionKind::tie ? tie_ : replicas_;
  const bool takes_part = kind != ReductionKind::moments || gathers_;
  return group.needed() && takes_part ? &group : nullptr;
}

void RankReductions::begin(ReductionKind kind) {
  at_ = kind;
  holding_ = false;
  state_ = State::none;
  if (!needed(kind)) return;
  if (GroupReduction* group = group_of(kind)) {
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

void RankReductions::begin() {
  begin(needed(ReductionKind::tie) ? ReductionKind::tie : ReductionKind::replicas);
}

void RankReductions::begin_distribution() {
  if (state_ == State::moving) return by_host(at_).release();
  if (state_ != State::held) return;
  GroupReduction* const group = group_of(at_);
  state_ = group != nullptr ? State::announced : State::leaving;
  if (group != nullptr) group->announce();
}

void RankReductions::begin_gather(ParameterBuffer which) {
  offered_ = which;
  begin(ReductionKind::moments);
}

RankReductions::Work RankReductions::handed_out(Doing doing, std::string_view label, RankJob job) {
  state_ = State::working;
  doing_ = doing;
  return {label, std::move(job)};
}

std::optional<RankReductions::Work> RankReductions::work() {
  switch (state_) {
    case State::announced:
      if (!group_of(at_)->may_exchange()) return std::nullopt;
      return handed_out(Doing::exchange, holding_ || at_ == ReductionKind::moments ? "gather" : "reduce",
                        exchange_job());
    case State::leaving:
      return handed_out(Doing::take_out, "to host", copy_job(Doing::take_out));
    case State::returning:
      return handed_out(Doing::put_back, "to device", copy_job(Doing::put_back));
    case State::moving:
      break;
    case State::none:
    case State::held:
    case State::working:
      return std::nullopt;
  }
  ReplicaReduction& now = by_host(at_);
  if (now.may_sum()) return handed_out(Doing::sum, "reduce", sum_job());
  if (!now.may_copy()) return std::nullopt;
  return handed_out(Doing::copy, "gather", [&now] {
    now.copy_sums();
    return WorkDone();
  });
}

RankJob RankReductions::exchange_job() {
  GroupReduction& group = *group_of(at_);
  switch (at_) {
    case ReductionKind::tie:
      return group.job([values = tied_gradient()](Communicator& ranks) { ranks.all_reduce_sum(values); });
    case ReductionKind::moments:
      return group.job([runner = runner_, which = offered_](Communicator& ranks) {
        Parameters& parameters = runner->section().parameters();
        parameters.offer(*runner->context().ops, which);
        ranks.gather_shards(parameters.gradients());
      });
    case ReductionKind::replicas:
      break;
  }
  // The shards of a group are those of Parameters::keep_moments(): both are shard_range() of all gradients.
  return group.job([values = parameters().gradients(), shares = parameters().shares_moments(),
                    stepped = holding_](Communicator& ranks) {
    if (!shares) return ranks.all_reduce_sum(values);
    return stepped ? ranks.gather_shards(values) : ranks.reduce_to_shards(values);
  });
}

RankJob RankReductions::sum_job() {
  if (at_ == ReductionKind::moments) {
    return [this, runner = runner_, which = offered_] {
      Parameters& parameters = runner->section().parameters();
      parameters.offer(*runner->context().ops, which);
      const ShardRange kept = parameters.kept_moments();
      if (mirror_.apart()) mirror_.take_out(parameters.gradients().subspan(kept.first, kept.count));
      return WorkDone();
    };
  }
  return [this, &now = by_host(at_)] {
    now.sum(*spec_->host_ops);
    return WorkDone();
  };
}

std::span<float> RankReductions::moved() const {
  const std::span<float> gradients = parameters().gradients();
  const ShardRange kept = parameters().kept_moments();
  if (holding_) return gradients.subspan(kept.first, kept.count);
  return at_ == ReductionKind::tie ? tied_gradient() : gradients;
}

RankJob RankReductions::copy_job(Doing doing) {
  return [this, doing, part = moved()] {
    if (doing == Doing::take_out) {
      mirror_.take_out(part);
    } else {
      mirror_.put_back(part);
    }
    return WorkDone();
  };
}

void RankReductions::worked(const TellRead& tell_read) {
  if (state_ != State::working) return;
  state_ = State::moving;
  switch (doing_) {
    case Doing::exchange:
      return exchanged();
    case Doing::take_out:
      return taken_out();
    case Doing::sum:
      return by_host(at_).summed();
    case Doing::copy:
      return by_host(at_).copied(tell_read);
    case Doing::put_back:
      return put_back();
  }
}

void RankReductions::exchanged() {
  const bool summed = at_ == ReductionKind::replicas && parameters().shares_moments() && !holding_;
  holding_ = summed;
  if (!summed) return finish();
  state_ = State::held;  // RX-2
}

void RankReductions::taken_out() {
  if (std::exchange(holding_, false)) return by_host(at_).release();
  by_host(at_).begin();
}

void RankReductions::put_back() {
  if (!holding_) return finish();
  state_ = State::held;
}

void RankReductions::finish() {
  if (group_of(at_) == nullptr) by_host(at_).finish();
  state_ = State::none;
  if (at_ == ReductionKind::tie) begin(ReductionKind::replicas);
}

bool RankReductions::done() {
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
