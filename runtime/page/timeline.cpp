// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/timeline.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/observe/trace_file.hpp"

namespace maestro {

namespace {

std::optional<TimelinePass> pass_named(const std::string& name) {
  if (name == "forward") return TimelinePass::forward;
  if (name == "backward") return TimelinePass::backward;
  if (name == "forward + backward") return TimelinePass::both;
  if (name == "reduce" || name == "norm" || name == "step") return TimelinePass::step;
  return std::nullopt;
}

class TimelineReader {
 public:
  explicit TimelineReader(std::vector<TimelineLane> lanes) { timeline_.lanes = std::move(lanes); }

  void take(const TraceFileSlice& slice) {
    const auto lane = std::ranges::find(timeline_.lanes, slice.track, &TimelineLane::track);
    const auto pass = pass_named(slice.name);
    if (lane == timeline_.lanes.end() || !pass) return;
    timeline_.slices.push_back({static_cast<std::size_t>(lane - timeline_.lanes.begin()), *pass, slice.start_ms,
                                slice.length_ms, slice.number("step")});
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
  Timeline timeline_;
};

}  // namespace

Result<Timeline> read_timeline(const std::filesystem::path& trace, std::vector<TimelineLane> lanes,
                               std::int64_t steps) {
  TimelineReader reader(std::move(lanes));
  const auto about = for_trace_slices(trace, [&](const TraceFileSlice& slice) { reader.take(slice); });
  if (!about) return about.error();
  return std::move(reader).middle(steps);
}

}  // namespace maestro
