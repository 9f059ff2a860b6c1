// SPDX-License-Identifier: Apache-2.0
// The rehearsals of ClusterPlanner: candidates, and the section that is critical alone.
#include <algorithm>
#include <numeric>
#include <optional>

#include "actors/layouts/cluster_places.hpp"
#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_kept = 4;                 // rehearsals, as those of thousands of devices are large
constexpr std::size_t most_candidates = 3;           // divisions that are rehearsed, beside sections apart
constexpr std::size_t most_passes_to_vary = 10'000;  // of a step: micro-batches are varied while a rehearsal is short
constexpr double near_the_best = 1.25;               // by bounds
constexpr double alike = 1.01;                       // times
constexpr std::int64_t least_replicas = 8;           // of a section, in a part that is rehearsed in place of all
constexpr std::int64_t least_devices = 256;          // of a part
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

std::string ClusterPlanner::text_of(const Division& division) {
  std::string text;
  for (const std::vector<std::string>& group : division.groups) {
    if (group.size() < 2) continue;
    text += text.empty() ? "" : ", ";
    for (std::size_t at = 0; at < group.size(); ++at) {
      text += (at == 0 ? "" : at + 1 == group.size() ? " and " : ", ") + group[at];
    }
  }
  if (text.empty()) return "all apart";
  return text + (division.sharing.staged ? " together" : " together, without stages");
}

bool ClusterPlanner::has_parts() const {
  return equal_samples_ && std::ranges::all_of(keys_.sections(), [&](const std::string& section) {
           return keys_.of(section).contains("replicas") && !gives_speed(section);
         });
}

void ClusterPlanner::divide(std::int64_t devices) {
  std::int64_t common = base_.train.global_batch;
  for (const DescribedPool& pool : cluster_.pools) common = std::gcd(common, pool.devices());
  std::int64_t parts = has_parts() ? std::max<std::int64_t>(1, devices / least_devices) : 1;
  while (common % parts != 0) --parts;
  lanes_.set_parts(parts);
}

std::int64_t ClusterPlanner::parts_of(const ClusterLayouts& layouts) const {
  if (!has_parts()) return 1;
  return equal_parts(layouts, base_.train.global_batch, least_replicas);
}

std::vector<std::string> ClusterPlanner::rehearsed_settings(const ClusterLayouts& layouts) const {
  const ClusterPlaces places(cluster_, layouts);
  std::vector<std::string> settings = run_settings(layouts);
  for (const auto& [section, on] : layouts) {
    const auto more =
        emulated(section, on.layout, places.shared(section) ? places.emulated_devices(section) : own_devices);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  return settings;
}

const ClusterRehearsal& ClusterPlanner::rehearsal_of(const ClusterLayouts& layouts, std::int64_t parts) {
  std::vector<std::string> settings = rehearsed_settings(part_of(layouts, parts));
  if (parts > 1) settings.push_back("train.global_batch=" + std::to_string(base_.train.global_batch / parts));
  const auto known = std::ranges::find(kept_, settings, &Kept::settings);
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return *kept_.front().rehearsal;
  }
  if (kept_.size() == most_kept) kept_.pop_back();
  std::optional<ClusterPart> part;
  if (parts > 1) part = {resolve_(settings), part_of(layouts, parts), part_of(units_, parts)};
  auto made = std::make_unique<ClusterRehearsal>(resolve_(parts > 1 ? rehearsed_settings(layouts) : settings), layouts,
                                                 cluster_, units_, lanes_, options_.hop_ms, std::move(part));
  kept_.push_front({std::move(settings), std::move(made)});
  return *kept_.front().rehearsal;
}

PlayedLayouts ClusterPlanner::play(const ClusterLayouts& layouts) {
  ++rehearsed_;
  return rehearsal_of(layouts).play();
}

PlayedLayouts ClusterPlanner::played_whole(const ClusterLayouts& layouts, PlayedLayouts played) {
  if (parts_of(layouts) == 1) return played;
  ++rehearsed_;
  kept_.clear();  // the whole of a large cluster needs memory
  return rehearsal_of(layouts, 1).play();
}

std::optional<ClusterLayouts> ClusterPlanner::with_in_flight(const ClusterLayouts& layouts, std::int64_t times) const {
  ClusterLayouts more = layouts;
  std::map<std::size_t, double> bytes;  // of a device of each group
  for (const auto& [section, on] : layouts) bytes[on.group] += on.bytes;
  bool some = false;
  for (auto& [section, on] : more) {
    const SectionId first = base_.graph.stages_of(section).front();
    const GraphNode& node = base_.graph.node(first);
    const bool awaits = node.runs_backward() && (on.layout.pipeline > 1 || base_.graph.awaits_gradient(first));
    if (!awaits || base_.settings.contains(section + ".max_in_flight")) continue;
    ClusterLayout raised = on;
    raised.keep_in_flight(times * std::max(node.max_in_flight, on.layout.pipeline));
    const double needed = bytes[on.group] - on.bytes + raised.bytes;
    const auto fits = [&](const PoolShare& share) {
      return needed <= options_.headroom * cluster_.pools[share.pool].memory_bytes;
    };
    if (raised.in_flight > most_slots || !std::ranges::all_of(on.shares(), fits)) continue;
    bytes[on.group] = needed;
    on = std::move(raised);
    some = true;
  }
  return some ? std::optional(std::move(more)) : std::nullopt;
}

PlayedLayouts ClusterPlanner::play_in_flight(ClusterLayouts& layouts) {
  PlayedLayouts played = play(layouts);
  const ClusterLayouts before = layouts;
  for (const std::int64_t times : {2, 4}) {
    if (played.step_ms <= bound_of(layouts) * (1 + options_.stall)) break;
    auto more = with_in_flight(before, times);
    if (!more) break;
    PlayedLayouts other = play(*more);
    if (other.step_ms > played.step_ms * (1 - least_plan_gain)) break;
    layouts = *std::move(more);
    played = std::move(other);
  }
  return played;
}

std::optional<ClusterLayouts> ClusterPlanner::with_batches(const ClusterLayouts& layouts,
                                                           const std::vector<std::string>& sections,
                                                           double times) const {
  std::map<std::size_t, double> bytes;  // of a device of each group
  for (const auto& [section, on] : layouts) bytes[on.group] += on.bytes;
  ClusterLayouts made = layouts;
  bool some = false;
  for (const std::string& section : sections) {
    ClusterLayout& on = made.at(section);
    const auto samples = static_cast<std::int64_t>(static_cast<double>(on.layout.micro_batch) * times);
    if (samples < 1 || !on.more.empty() || !keys_.of(section).contains("micro_batch")) continue;
    const auto other = lanes_.with_micro_batch(section, on, samples);
    if (!other) continue;
    const double needed = bytes[on.group] - on.bytes + other->bytes;
    if (needed > options_.headroom * cluster_.pools[on.pool].memory_bytes) continue;
    bytes[on.group] = needed;
    on = *other;
    some = true;
  }
  return some ? std::optional(std::move(made)) : std::nullopt;
}

ClusterPlanner::Tried ClusterPlanner::with_best_batches(Tried tried) {
  const auto try_batches = [&](const std::vector<std::string>& sections, double times) {
    if (tried.played.step_ms <= bound_of(tried.layouts) * (1 + options_.stall)) return;
    auto made = with_batches(tried.layouts, sections, times);
    if (!made) return;
    PlayedLayouts played = play(*made);
    if (played.step_ms > tried.played.step_ms * (1 - least_plan_gain)) return;
    tried.layouts = *std::move(made);
    tried.played = std::move(played);
  };
  if (rehearsal_of(tried.layouts).passes() > most_passes_to_vary) return tried;
  for (const double times : {2.0, 0.5}) {
    try_batches(keys_.sections(), times);
    for (const std::string& section : keys_.sections()) try_batches({section}, times);
  }
  return tried;
}

double ClusterPlanner::alone_ms(const ClusterLayouts& layouts, const std::string& section) {
  RehearsalChange change;
  for (const auto& [other, on] : layouts) {
    if (other != section) change.faster[other] = infinity;
  }
  ++rehearsed_;
  return rehearsal_of(layouts).play(change).step_ms;
}

std::vector<const ClusterPlanner::Candidate*> ClusterPlanner::promising(
    const std::vector<Candidate>& candidates) const {
  const auto estimate = [&](const Candidate* each) {
    return options_.cheapest ? each->allocation.price_of_step() : each->allocation.bound_ms;
  };
  std::vector<const Candidate*> order;
  for (const Candidate& candidate : candidates) order.push_back(&candidate);
  std::ranges::stable_sort(order, {}, estimate);
  const double most = estimate(order.front()) * near_the_best;
  std::erase_if(order, [&](const Candidate* each) { return estimate(each) > most; });
  // Bounds leave out the waits of groups for each other: where they are alike, those of fewer groups are first.
  const double least = estimate(order.front()) * alike;
  const auto others = std::ranges::find_if(order, [&](const Candidate* each) { return estimate(each) > least; });
  std::stable_sort(order.begin(), others, [](const Candidate* one, const Candidate* other) {
    return one->division.groups.size() < other->division.groups.size();
  });
  order.resize(std::min(order.size(), most_candidates));
  // Bounds favour shared devices, so sections apart always have a chance.
  if (std::ranges::find(order, &candidates.front()) == order.end()) order.push_back(&candidates.front());
  return order;
}

ClusterPlanner::Tried ClusterPlanner::untried(std::string text, ClusterLayouts layouts) const {
  const ClusterPlaces places(cluster_, layouts);
  return {std::move(layouts), {}, places.price_per_hour(), places.all_devices(), std::move(text)};
}

void ClusterPlanner::add_rival(const Tried& rival, double step_ms, bool rehearsed) {
  rivals_.push_back({rival.text, rival.layouts, step_ms, rehearsed, rival.price_per_hour});
}

ClusterPlanner::Tried ClusterPlanner::best_of(const std::vector<Candidate>& candidates,
                                              const std::vector<std::int64_t>& devices) {
  rivals_.clear();
  std::vector<ClusterLayouts> seen;
  std::optional<Tried> best;
  const auto cost = [&](const Tried& each, double step_ms) {
    return options_.cheapest ? each.price_per_hour * step_ms : step_ms;
  };
  std::vector<std::pair<Division, Allocation>> variants;
  for (const Candidate* const candidate : promising(candidates)) {
    for (Division& division : variants_of(candidate->division)) {
      const bool same = division.sharing == candidate->division.sharing;
      if (auto made = same ? candidate->allocation : allocated(division, devices)) {
        variants.emplace_back(std::move(division), *std::move(made));
      }
    }
  }
  for (auto& [division, allocation] : variants) {
    Tried made = untried(text_of(division), layouts_of(division, allocation, devices));
    if (std::ranges::any_of(seen, [&](const auto& other) { return same_layouts(made.layouts, other); })) continue;
    seen.push_back(made.layouts);
    const double best_cost = best ? cost(*best, best->played.step_ms) : infinity;
    const double least_ms = busiest_ms(made.layouts);
    if (cost(made, least_ms) > best_cost * alike) {
      add_rival(made, least_ms, false);
      continue;
    }
    made.played = play_in_flight(made.layouts);
    const double made_cost = cost(made, made.played.step_ms);
    const bool better =
        made_cost * alike < best_cost || (made_cost < best_cost * alike && made.devices < best->devices);
    if (best) {
      const Tried& rival = better ? *best : made;
      add_rival(rival, rival.played.step_ms);
    }
    if (!best || better) best = std::move(made);
  }
  return *std::move(best);
}

std::vector<RivalDivision> ClusterPlanner::rivals_of(const Tried& choice) {
  std::ranges::stable_sort(rivals_, {}, &RivalDivision::step_ms);
  std::set<std::string> named{choice.text};
  std::erase_if(rivals_, [&](const RivalDivision& rival) { return !named.insert(rival.text).second; });
  return std::move(rivals_);
}

}  // namespace maestro
