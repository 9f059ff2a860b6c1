#include "runtime/device/graph_policy.hpp"

namespace maestro {

GraphAction GraphPolicy::next(GraphKey key) {
  if (work_.size() >= options_.most_keys && !work_.contains(key)) {
    std::erase_if(work_, [](const auto& each) { return each.second.state != State::kept; });  // GP-3
  }
  Work& work = work_[key];
  work.used = ++clock_;
  if (work.state == State::kept) return GraphAction::replay;
  return work.state == State::worth ? GraphAction::record : GraphAction::plain;
}

void GraphPolicy::issued(GraphKey key, std::chrono::nanoseconds host_time) {
  Work& work = work_[key];
  const bool judged = work.state == State::seen || options_.least_issue_time.count() == 0;  // GP-1
  if (work.state == State::fresh) work.state = State::seen;
  if (work.state == State::seen && judged && host_time >= options_.least_issue_time) work.state = State::worth;
}

std::optional<GraphKey> GraphPolicy::recorded(GraphKey key) {
  work_[key].state = State::kept;
  ++graphs_;
  return evict(key);
}

void GraphPolicy::failed(GraphKey key) {
  work_[key].state = State::refused;
}

std::optional<GraphKey> GraphPolicy::evict(GraphKey keep) {
  if (graphs_ <= options_.most_graphs) return std::nullopt;
  auto oldest = work_.end();
  for (auto each = work_.begin(); each != work_.end(); ++each) {
    if (each->second.state != State::kept || each->first == keep) continue;
    if (oldest == work_.end() || each->second.used < oldest->second.used) oldest = each;
  }
  if (oldest == work_.end()) return std::nullopt;
  const GraphKey gone = oldest->first;
  work_.erase(oldest);
  --graphs_;
  return gone;
}

}  // namespace maestro
