// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/timeline.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace maestro {

namespace {

using Json = nlohmann::json;
using Thread = std::pair<std::int64_t, std::int64_t>;  // process and thread id in the trace

constexpr double ms_per_us = 1e-3;
constexpr int event_depth = 2;  // {"traceEvents": [{...}]}

std::optional<TimelinePass> pass_named(const std::string& name) {
  if (name == "forward") return TimelinePass::forward;
  if (name == "backward") return TimelinePass::backward;
  if (name == "forward + backward") return TimelinePass::both;
  if (name == "reduce" || name == "norm" || name == "step") return TimelinePass::step;
  return std::nullopt;
}

/// Takes the events singly: a whole trace would take ten times its size in memory.
class TraceEvents {
 public:
  explicit TraceEvents(std::vector<TimelineLane> lanes) { timeline_.lanes = std::move(lanes); }

  void take(const Json& event) {
    const std::string kind = event.value("ph", "");
    if (kind == "M" && event.value("name", "") == "thread_name") name_thread(event);
    if (kind == "X") add_slice(event);
  }

  [[nodiscard]] Timeline middle(std::int64_t steps) && {
    std::int64_t first = 0, last = 0;
    for (const TimelineSlice& slice : timeline_.slices) {
      first = first == 0 ? slice.step : std::min(first, slice.step);
      last = std::max(last, slice.step);
    }
    timeline_.first_step = std::max(first, (first + last + 1 - steps) / 2);
    timeline_.last_step = std::min(last, timeline_.first_step + steps - 1);
    std::erase_if(timeline_.slices, [&](const TimelineSlice& slice) {
      return slice.step < timeline_.first_step || slice.step > timeline_.last_step;
    });
    std::ranges::stable_sort(timeline_.slices, {}, &TimelineSlice::begin_ms);
    const double origin = timeline_.slices.empty() ? 0 : timeline_.slices.front().begin_ms;
    for (TimelineSlice& slice : timeline_.slices) slice.begin_ms -= origin;
    return std::move(timeline_);
  }

 private:
  static Thread thread_of(const Json& event) {
    return {event.at("pid").get<std::int64_t>(), event.at("tid").get<std::int64_t>()};
  }

  void name_thread(const Json& event) {
    const auto& lanes = timeline_.lanes;
    const auto lane = std::ranges::find(lanes, event.at("args").at("name").get<std::string>(), &TimelineLane::track);
    if (lane != lanes.end()) lane_of_[thread_of(event)] = static_cast<std::size_t>(lane - lanes.begin());
  }

  void add_slice(const Json& event) {
    const auto lane = lane_of_.find(thread_of(event));
    const auto pass = pass_named(event.at("name").get<std::string>());
    if (lane == lane_of_.end() || !pass) return;
    timeline_.slices.push_back({lane->second, *pass, event.at("ts").get<double>() * ms_per_us,
                                event.at("dur").get<double>() * ms_per_us,
                                event.at("args").at("step").get<std::int64_t>()});
  }

  Timeline timeline_;
  std::map<Thread, std::size_t> lane_of_;
};

}  // namespace

Result<Timeline> read_timeline(const std::filesystem::path& trace, std::vector<TimelineLane> lanes,
                               std::int64_t steps) {
  std::ifstream file(trace, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, "cannot read the trace " + trace.string()};
  TraceEvents events(std::move(lanes));
  try {
    const auto each = [&](int depth, Json::parse_event_t part, Json& value) {
      if (depth != event_depth || part != Json::parse_event_t::object_end) return true;
      events.take(value);
      return false;
    };
    const Json rest = Json::parse(file, each);
    if (!rest.contains("traceEvents")) {
      return Error{ErrorCode::corrupt, trace.string() + " has no traceEvents; it is not a trace of maestro"};
    }
  } catch (const Json::exception&) {
    return Error{ErrorCode::corrupt, trace.string() + " is not a trace of maestro; run again to write it anew"};
  }
  return std::move(events).middle(steps);
}

}  // namespace maestro
