// SPDX-License-Identifier: Apache-2.0
#include "actors/job/repeated_plans.hpp"

#include <algorithm>
#include <optional>

namespace maestro {

namespace {

bool same_sizes(const std::vector<SampleRef>& one, const std::vector<SampleRef>& other) {
  return std::ranges::equal(one, other, [](const SampleRef& a, const SampleRef& b) { return a.same_size(b); });
}

template <class Numbers>
auto& at(Numbers& numbers, Channel channel, ReplicaIndex receiver) {
  if (channel.edge.value() >= numbers.size()) numbers.resize(channel.edge.value() + 1);
  auto& replicas = numbers[channel.edge.value()][static_cast<std::size_t>(channel.direction)];
  if (receiver.value() >= replicas.size()) replicas.resize(receiver.value() + 1);
  return replicas[receiver.value()];
}

}  // namespace

Result<RepeatedPlans> repeated_plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                        const JobTimes& times, std::size_t most_apart) {
  RepeatedPlans plans;
  if (!plan.train.deterministic) {  // costs follow each step's passes
    Result<std::vector<StepPlan>> made = plans_of(plan, units, &times);
    if (!made) return made.error();
    plans.planned = std::move(*made);
    for (std::size_t unit = 0; unit < units.size(); ++unit) plans.of_unit.push_back(unit);
    return plans;
  }
  std::vector<std::size_t> first;  // each plan's unit
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const auto known =
        std::ranges::find_if(first, [&](std::size_t at) { return same_sizes(units[at].samples, units[unit].samples); });
    std::optional<std::size_t> number;
    if (known != first.end()) {
      number = static_cast<std::size_t>(known - first.begin());
    } else if (first.size() >= 2 && plan.places.size() > most_apart) {
      number = unit % 2;
    }
    if (!number) {
      Result<std::vector<StepPlan>> made = plans_of(plan, {units[unit]}, nullptr);
      if (!made) return made.error();
      number = first.size();
      first.push_back(unit);
      plans.planned.push_back(std::move(made->front()));
    }
    plans.of_unit.push_back(*number);
  }
  return plans;
}

StepNumbers::ByReceiver<StepNumbers::Range> StepNumbers::ranges_of(const StepPlan& plan) {
  ByReceiver<Range> ranges;
  for (const MicroBatchPlan& batch : plan.micro_batches) {
    for (const ArrivalPlan& arrival : batch.arrivals) {
      Range& range = at(ranges, arrival.channel, batch.replica);
      range.first = std::min(range.first, arrival.sequence);
      range.end = std::max(range.end, arrival.sequence + 1);
    }
  }
  return ranges;
}

StepPlan StepNumbers::numbered(const StepPlan& plan, StepId step) {
  ByReceiver<Range> ranges = ranges_of(plan);
  StepPlan made = plan;
  made.step = step;
  const auto number = [&](Channel channel, ReplicaIndex receiver, std::uint64_t& sequence) {
    sequence += at(next_, channel, receiver) - at(ranges, channel, receiver).first;
  };
  for (MicroBatchPlan& batch : made.micro_batches) {
    batch.step = step;
    for (ArrivalPlan& arrival : batch.arrivals) number(arrival.channel, batch.replica, arrival.sequence);
    for (PieceOut& piece : batch.pieces) number(piece.channel, piece.receiver, piece.sequence);
  }
  for (std::size_t edge = 0; edge < ranges.size(); ++edge) {
    for (const Direction direction : directions) {
      const auto& of_replicas = ranges[edge][static_cast<std::size_t>(direction)];
      for (std::uint32_t replica = 0; replica < of_replicas.size(); ++replica) {
        const Range& range = of_replicas[replica];
        if (range.end > 0) {
          at(next_, {EdgeId(static_cast<std::uint32_t>(edge)), direction}, ReplicaIndex(replica)) +=
              range.end - range.first;
        }
      }
    }
  }
  return made;
}

Result<SteadyRehearsal> rehearse_repeated(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                          const RepeatedPlans& plans, const JobTimes& times,
                                          const RehearsalChange& change) {
  StepNumbers numbers;
  const auto unit_of = [&](std::size_t unit) {
    return RehearsalUnit{numbers.numbered(plans.planned[plans.of_unit[unit]], units[unit].step)};
  };
  const std::size_t behind = units_behind(plan);
  const std::optional<std::size_t> last =
      units.size() > behind ? std::optional(units.size() - behind - 1) : std::nullopt;
  return steady_rehearsal(plan, rehearse_units(plan, units.size(), unit_of, times, change, last));
}

}  // namespace maestro
