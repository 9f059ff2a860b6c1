// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/graph_policy.hpp"

namespace maestro {

std::optional<GraphUse> graph_use(std::string_view name) {
  if (name == "never") return GraphUse::never;
  if (name == "auto") return GraphUse::where_they_pay;
  if (name == "always") return GraphUse::always;
  return std::nullopt;
}

GraphPolicyOptions graph_options(GraphUse use) {
  GraphPolicyOptions options;
  if (use == GraphUse::always) {
    options.least_issue_time = std::chrono::microseconds(0);
    options.most_plain = std::numeric_limits<std::size_t>::max();
  }
  return options;
}

GraphAction GraphPolicy::next(GraphKey key) {
  if (work_.size() >= options_.most_keys && !work_.contains(key)) {
    std::erase_if(work_, [](const auto& each) { return each.second.state != State::kept; });  // GP-3
  }
  Work& work = work_[key];
  work.used = ++clock_;
  if (work.state == State::kept) return GraphAction::replay;
  return work.state == State::worth ? GraphAction::record : GraphAction::plain;
}

bool GraphPolicy::wants_times(GraphKey key) const {
  const auto found = work_.find(key);
  return found != work_.end() && found->second.state == State::seen;
}

void GraphPolicy::issued(GraphKey key) {
  Work& work = work_[key];
  if (work.state != State::fresh) return;
  work.state = options_.least_issue_time.count() == 0 ? State::worth : State::seen;  // GP-1
}

void GraphPolicy::timed(GraphKey key, std::chrono::nanoseconds host, std::chrono::nanoseconds device) {
  if (!wants_times(key)) return;
  const bool pays = host >= options_.least_issue_time && 2 * host >= device;  // GP-1
  work_[key].state = pays ? State::worth : State::plain;
}

std::optional<GraphKey> GraphPolicy::recorded(GraphKey key) {
  work_[key].state = State::kept;
  ++graphs_;
  return evict(key);
}

void GraphPolicy::failed(GraphKey key) {
  work_[key].state = State::plain;
}

std::optional<GraphKey> GraphPolicy::evict(GraphKey keep) {
  if (graphs_ <= options_.most_graphs) return std::nullopt;
  auto oldest = work_.end();
  for (auto each = work_.begin(); each != work_.end(); ++each) {
    if (each->second.state != State::kept || each->first == keep) continue;
    if (oldest == work_.end() || each->second.used < oldest->second.used) oldest = each;
  }
  if (oldest == work_.end()) return std::nullopt;
  oldest->second.state = State::plain;  // GP-3: otherwise, more work than graphs would lead to new graphs forever
  --graphs_;
  return oldest->first;
}

bool RepeatingPlaces::worth_a_look(std::uint64_t place) const {
  const auto found = plain_.find(place);
  return found == plain_.end() || found->second < most_plain_;
}

void RepeatingPlaces::ran(std::uint64_t place, GraphAction action) {
  if (action == GraphAction::plain) {
    ++plain_[place];
  } else {
    plain_[place] = 0;
  }
}

}  // namespace maestro
