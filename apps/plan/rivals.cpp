// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/rivals.hpp"

#include <algorithm>
#include <set>

namespace maestro {

namespace {

constexpr double close_rival = 1.05;  // ratio of rehearsed steps up to which keys may make the rival faster
constexpr std::size_t most_close = 2;
constexpr double sure_ms = 0.01;  // share of a step within which a choice counts as the best
/// The most micro-batches that are rehearsed to examine a choice: on thousands of devices a rehearsal takes seconds.
constexpr std::size_t most_examined = 20'000;

}  // namespace

void Rivals::add(const LayoutTrial& rival, double step_ms, bool rehearsed) {
  all_.push_back({rival.text, rival.layouts, step_ms, rehearsed, rival.price_per_hour});
}

std::vector<RivalDivision> Rivals::close_to(double step_ms) const {
  std::vector<RivalDivision> close;
  for (const RivalDivision& rival : all_) {
    if (rival.rehearsed && rival.step_ms <= step_ms * close_rival) close.push_back(rival);
  }
  std::ranges::stable_sort(close, {}, &RivalDivision::step_ms);
  close.resize(std::min(close.size(), most_close));
  return close;
}

std::vector<RivalDivision> Rivals::of(const LayoutTrial& choice, bool cheapest) const {
  const auto cost = [&](double price_per_hour, double step_ms) {
    return cheapest ? price_per_hour * step_ms : step_ms;
  };
  std::vector<RivalDivision> rivals = all_;
  std::ranges::stable_sort(rivals, {}, &RivalDivision::step_ms);
  std::set<std::string> named{choice.text};
  std::erase_if(rivals, [&](const RivalDivision& rival) { return !named.insert(rival.text).second; });
  const double best = cost(choice.price_per_hour, choice.played.step_ms);
  for (RivalDivision& rival : rivals) rival.more = cost(rival.price_per_hour, rival.step_ms) / best - 1;
  std::ranges::stable_sort(rivals, {}, &RivalDivision::more);
  return rivals;
}

std::vector<Certainty> certainties(const ClusterJob& job, TrialBench& bench, const LayoutTrial& choice,
                                   const std::vector<RivalDivision>& rivals, const std::string& critical) {
  std::size_t left = std::max(most_examined, 2 * bench.passes(choice.layouts, choice.keys));
  const auto stays = [&](const std::string& section, double longer) {
    RehearsalChange change;
    change.faster[section] = 1 / longer;
    const auto step_ms = [&](const ClusterLayouts& layouts, const PlannedRunKeys& keys) {
      left -= std::min(left, bench.passes(layouts, keys));
      return bench.changed_ms(layouts, keys, change);
    };
    if (left == 0) return false;
    const double own_ms = step_ms(choice.layouts, choice.keys);
    return std::ranges::all_of(rivals, [&](const RivalDivision& rival) {
      if (own_ms <= busiest_ms(rival.layouts, section, std::min(1.0, longer)) * (1 + sure_ms)) return true;
      return left > 0 && own_ms <= step_ms(rival.layouts, {}) * (1 + sure_ms);
    });
  };
  std::vector<std::string> order{critical};
  for (const std::string& section : job.keys.sections()) {
    if (section != critical) order.push_back(section);
  }
  std::vector<Certainty> certain;
  for (const std::string& section : order) {
    if (left == 0) break;
    Certainty& of = certain.emplace_back(Certainty{section});
    const auto farthest = [&](std::initializer_list<double> factors) {
      const auto found = std::ranges::find_if(factors, [&](double longer) { return stays(section, longer); });
      return found == factors.end() ? 1.0 : *found;
    };
    of.least = farthest({0.7, 0.8, 0.9});
    of.most = farthest({1.4, 1.25, 1.1});
  }
  return certain;
}

}  // namespace maestro
