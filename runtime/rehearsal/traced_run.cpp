// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/traced_run.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "runtime/core/quantile.hpp"
#include "runtime/observe/trace_file.hpp"
#include "runtime/schedule/sample_list.hpp"

namespace maestro {

namespace {

constexpr std::string_view transfers_suffix = " transfers";

/// The parsed name of a track: "student/1.2" is replica 1, rank 2 of section student.
struct Track {
  std::string section;
  std::int64_t replica = 0;
};

std::optional<Track> lane_of(std::string_view track) {
  const std::size_t slash = track.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  Track lane{std::string(track.substr(0, slash)), 0};
  const char* const begin = track.data() + slash + 1;
  if (std::from_chars(begin, track.data() + track.size(), lane.replica).ec != std::errc()) return std::nullopt;
  return lane;
}

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  void take(const TraceFileSlice& slice) {
    if (slice.category == "plan") return add_unit(slice);
    if (slice.category == "transfer") return add_transfer(slice);
    const std::optional<Track> lane = lane_of(slice.track);
    if (!lane) return;
    if (slice.category == "wait") {
      last_pass_.erase(slice.track);
      return;
    }
    if (slice.category == "forward" && !slice.args.contains("batch")) return add_generation(slice);
    if (slice.args.contains("batch")) {
      add_pass(slice, *lane);
    } else if (slice.category == "step") {
      add_action(slice, *lane);
    }
  }

  Result<TracedRun> result(TraceAbout about) {
    if (failure_) return *failure_;
    run_.facts = std::move(about.facts);
    run_.dropped = about.dropped;
    if (run_.units.empty() || !run_.facts.contains("job")) {
      return Error{
          ErrorCode::corrupt,
          file_ + " lacks the samples of steps; write a trace with this version of maestro (train --trace FILE)"};
    }
    for (TracedUnit& unit : run_.units) {
      const auto end = ends_.find({unit.step, unit.pass});
      if (end != ends_.end()) unit.end_ms = end->second;
      unit.checkpoint = unit.pass == Pass::train && snapshots_.contains(unit.step);
    }
    if (run_.dropped > 0) leave_out_incomplete();
    std::erase_if(run_.units, [](const TracedUnit& unit) { return unit.end_ms <= 0; });
    // Lanes that share a device wait for each other between passes: the lower quartile excludes such waits. In steps
    // with a pass for each lane they wait for a rollout, but a generator's jobs follow each other.
    std::vector<double>& gaps = generation_gaps_.empty() ? gaps_ : generation_gaps_;
    if (!gaps.empty()) run_.hop_ms = quantile_of(std::move(gaps), 0.25);
    return std::move(run_);
  }

 private:
  void add_unit(const TraceFileSlice& slice) {
    Result<std::vector<SampleRef>> samples = parse_sample_list(slice.text("samples"));
    if (!samples) {
      failure_ = Error{ErrorCode::corrupt,
                       file_ + ", step " + std::to_string(slice.number("step")) + ": " + samples.error().message};
      return;
    }
    TracedUnit unit;
    unit.step = step_of(slice);
    unit.pass = slice.text("pass") == "evaluate" ? Pass::evaluate : Pass::train;
    unit.samples = std::move(*samples);
    unit.planning_ms = slice.length_ms;
    run_.units.push_back(std::move(unit));
  }

  void add_pass(const TraceFileSlice& slice, const Track& lane) {
    const StepId step = step_of(slice);
    const Pass kind = slice.text("pass") == "evaluate" ? Pass::evaluate : Pass::train;
    const auto batch = static_cast<std::uint32_t>(slice.number("batch"));
    TracedPass& pass = run_.passes[{lane.section, step, kind, batch}];
    pass.rows = slice.number("rows");
    double& ms = slice.category == "backward" ? pass.backward_ms : pass.forward_ms;
    ms = std::max(ms, slice.length_ms);
    ended(slice, kind);
    if (kind == Pass::train) {
      double& last = run_.lanes[{lane.section, lane.replica, step}].last_pass_ms;
      last = std::max(last, slice.end_ms());
    }
    const auto before = last_pass_.find(slice.track);
    if (before != last_pass_.end()) gaps_.push_back(std::max(0.0, slice.start_ms - before->second));
    last_pass_[slice.track] = slice.end_ms();
  }

  void add_action(const TraceFileSlice& slice, const Track& lane) {
    last_pass_.erase(slice.track);
    if (slice.name == "snapshot") {
      snapshots_.insert(step_of(slice));
      return;
    }
    TracedActions& actions = run_.lanes[{lane.section, lane.replica, step_of(slice)}].actions;
    const auto [found, fresh] = actions.try_emplace(slice.name, TracedAction{slice.start_ms, slice.end_ms()});
    if (!fresh) found->second.end_ms = std::max(found->second.end_ms, slice.end_ms());
    ended(slice, Pass::train);
  }

  void add_generation(const TraceFileSlice& slice) {
    TracedGeneration& generation = run_.generation;
    const auto before = last_pass_.find(slice.track);  // a job ends with a decode step
    if (before != last_pass_.end()) generation_gaps_.push_back(std::max(0.0, slice.start_ms - before->second));
    last_pass_.erase(slice.track);
    if (slice.name == "prefill") generation.prefills.push_back(slice.length_ms);
    if (slice.name == "take") generation.takes.push_back(slice.length_ms);
    if (slice.name != "decode" || !slice.args.contains("sequences")) return;
    last_pass_[slice.track] = slice.end_ms();
    generation.decodes.emplace_back(slice.number("sequences"), slice.length_ms);
  }

  void add_transfer(const TraceFileSlice& slice) {
    if (slice.name != "write" || !slice.track.ends_with(transfers_suffix)) return;
    const std::string_view track(slice.track);
    const std::optional<Track> from = lane_of(track.substr(0, track.size() - transfers_suffix.size()));
    if (from) {
      run_.writes.push_back({from->section, std::string(slice.text("to")), slice.number("rows"), slice.length_ms});
    }
  }

  static StepId step_of(const TraceFileSlice& slice) {
    return StepId(static_cast<std::uint64_t>(slice.number("step")));
  }

  void ended(const TraceFileSlice& slice, Pass pass) {
    double& end = ends_[{step_of(slice), pass}];
    end = std::max(end, slice.end_ms());
    StepId& last = last_step_[slice.track];
    last = std::max(last, step_of(slice));
  }

  /// Applies TU-1: a process drops all events after a certain time, so a lane may lack everything after its last step.
  void leave_out_incomplete() {
    StepId whole(UINT64_MAX);
    for (const auto& [track, step] : last_step_) whole = std::min(whole, step);
    std::erase_if(run_.units, [whole](const TracedUnit& unit) { return unit.step >= whole; });
  }

  std::string file_;
  TracedRun run_;
  std::optional<Error> failure_;
  std::map<std::pair<StepId, Pass>, double> ends_;
  std::set<StepId> snapshots_;
  std::map<std::string, StepId> last_step_;  // last step by track
  std::map<std::string, double> last_pass_;  // end of the last pass by track, while only passes follow
  std::vector<double> gaps_;
  std::vector<double> generation_gaps_;  // of a generator, between its jobs
};

}  // namespace

Result<TracedRun> read_traced_run(const std::filesystem::path& trace) {
  Reader reader(trace.string());
  Result<TraceAbout> about = for_trace_slices(trace, [&](const TraceFileSlice& slice) { reader.take(slice); });
  if (!about) return about.error();
  return reader.result(std::move(*about));
}

}  // namespace maestro
