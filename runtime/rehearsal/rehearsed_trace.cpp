// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_trace.hpp"

#include <array>
#include <chrono>
#include <limits>
#include <system_error>

#include "runtime/observe/trace.hpp"

namespace maestro {

namespace {

using Kind = LaneInterval::Kind;

TraceTime time_of(double ms) {
  return TraceTime() + std::chrono::round<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
}

std::string_view label_of(const LaneInterval& interval) {
  switch (interval.kind) {
    case Kind::forward:
      return interval.pass == Pass::train ? "forward" : "evaluate";
    case Kind::backward:
      return "backward";
    case Kind::forward_backward:
      return "forward + backward";
    case Kind::boundary:
      return "step";
    case Kind::wait:
      break;
  }
  return "wait";
}

TraceCategory category_of(Kind kind) {
  switch (kind) {
    case Kind::backward:
      return TraceCategory::backward;
    case Kind::boundary:
      return TraceCategory::step;
    case Kind::wait:
      return TraceCategory::wait;
    default:
      return TraceCategory::forward;
  }
}

}  // namespace

Status write_rehearsed_trace(const Rehearsed& rehearsed, const SectionGraph& graph, const std::filesystem::path& out) {
  TraceRecorder recorder(ProcessId(0), "rehearsal", {true, std::numeric_limits<std::size_t>::max(), TraceClock()});
  for (const auto& [lane, intervals] : rehearsed.lanes) {
    const TrackId track = recorder.track(graph.node(lane.section).name + "/" + std::to_string(lane.replica.value()));
    for (const LaneInterval& interval : intervals) {
      const TraceSlice slice{track, label_of(interval), category_of(interval.kind), time_of(interval.start_ms),
                             time_of(interval.end_ms)};
      if (interval.kind == Kind::wait) {
        recorder.slice(slice, {{"for", *interval.waits_for}});
      } else if (interval.kind == Kind::boundary) {
        recorder.slice(slice, {{"step", interval.step.value()}});
      } else {
        recorder.slice(slice, {{"step", interval.step.value()}, {"batch", interval.batch}});
      }
    }
  }
  const std::array part{std::filesystem::path(out.string() + ".part")};
  Status written = recorder.write_part(part.front());
  if (written) written = merge_traces(part, out);
  std::error_code ignored;
  std::filesystem::remove(part.front(), ignored);
  return written;
}

}  // namespace maestro
