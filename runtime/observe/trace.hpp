// SPDX-License-Identifier: Apache-2.0
// A timeline of a process: slices on named tracks (for each replica and transfer thread), arrows between them and
// counters. Each process writes a part; `merge_traces` merges all parts into a single Perfetto/Chrome file.
//
// TR-1 (each event counted): events recorded + events dropped == events reported while recording is on.
// TR-2 (bounded): at most `max_events` are held; later events are dropped and counted, so a long run keeps its
//       beginning.
// TR-3 (one track per name): a name has a single track; tracks keep the order of their first use.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

enum class TraceCategory : std::uint8_t { forward, backward, step, wait, transfer, source, plan };
[[nodiscard]] std::string_view name_of(TraceCategory category);

using TrackId = Id<struct TraceTrackTag>;
using TraceTime = std::chrono::steady_clock::time_point;

/// A key with an integer or a string, e.g. {"sample", 12}. Views only: the recorder makes copies.
struct TraceArg {
  TraceArg(std::string_view key_, std::integral auto value_) : key(key_), value(static_cast<std::int64_t>(value_)) {}
  TraceArg(std::string_view key_, std::string_view value_) : key(key_), value(value_) {}
  std::string_view key;
  std::variant<std::int64_t, std::string_view> value;
};
using TraceArgs = std::initializer_list<TraceArg>;

struct TraceSlice {
  TrackId track;
  std::string_view name;
  TraceCategory category = TraceCategory::step;
  TraceTime start;
  TraceTime end;  ///< at least `start`; an earlier end counts as `start`
};

/// Offset of a process's steady clock: parts of the same host share the clock, parts of other hosts are aligned by wall
/// time.
struct TraceClock {
  std::string host;  ///< equal for all processes of a machine's boot
  std::chrono::nanoseconds system_minus_steady{0};
};
[[nodiscard]] TraceClock this_trace_clock();

struct TraceOptions {
  bool on = true;                     ///< off: recording returns at once
  std::size_t max_events = 250'000;   ///< about 150 bytes each
  std::optional<TraceClock> clock{};  ///< this process's clock if absent
};

/// Thread-safe: any thread may record on any track. Recording takes a short lock; if off, it costs a branch.
class TraceRecorder {
 public:
  TraceRecorder(ProcessId process, std::string process_name, TraceOptions options = {});
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  [[nodiscard]] bool on() const { return on_; }
  /// Returns the track of that name, new or existing (TR-3).
  [[nodiscard]] TrackId track(std::string_view name);

  void slice(const TraceSlice& slice, TraceArgs args = {});
  /// Records an end of an arrow. Both ends have the same `flow` and `name`, with `flow` unique over all processes of
  /// the run; each binds to the slice of its track that encloses `time` (start <= time < end).
  void flow_start(TrackId track, std::uint64_t flow, TraceTime time, std::string_view name);
  void flow_end(TrackId track, std::uint64_t flow, TraceTime time, std::string_view name);
  /// Records a value of the process over time. NaN and infinities leave a gap.
  void counter(std::string_view name, TraceTime time, double value);

  /// States a fact about the run, which the merged trace holds under "otherData".
  void describe(const std::string& key, std::string value);

  [[nodiscard]] std::size_t recorded() const;
  [[nodiscard]] std::size_t dropped() const;

  /// Writes the events recorded so far, for `merge_traces`; recording may continue meanwhile.
  [[nodiscard]] Status write_part(const std::filesystem::path& path) const;

 private:
  friend class TraceSpan;
  using Args = std::vector<std::pair<std::string, std::variant<std::int64_t, std::string>>>;
  enum class Kind : std::uint8_t { slice, flow_start, flow_end, counter };
  struct Event {
    Kind kind = Kind::slice;
    TraceCategory category = TraceCategory::step;
    TrackId track;
    std::int64_t start_ns = 0;  // on the steady clock
    std::int64_t duration_ns = 0;
    std::uint64_t flow = 0;
    double value = 0;
    std::string name;
    Args args;
  };
  static Args copy_of(TraceArgs args);
  static std::string line_of(const Event& event);
  void record(Event event);

  const ProcessId process_;
  const std::string process_name_;
  const bool on_;
  const std::size_t max_events_;
  const TraceClock clock_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> tracks_;
  std::map<std::string, std::string> about_;
  std::deque<Event> events_;  // grows by chunks, so that no record() copies the others
  std::size_t dropped_ = 0;
};

/// A slice from construction to destruction. Single thread; must not outlive the recorder.
class TraceSpan {
 public:
  TraceSpan(TraceRecorder& recorder, TrackId track, std::string_view name, TraceCategory category, TraceArgs args = {});
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan();
  void annotate(const TraceArg& arg);

 private:
  TraceRecorder& recorder_;
  TraceRecorder::Event event_;  // untouched while recording is off
};

/// Writes `out` as Chrome trace JSON, sorted by time, starting at 0: process ids are ranks, track order is kept.
/// "otherData" has the counts of dropped events and the facts, each from the first part that states it. Fails, naming
/// the file, on a part that is missing, damaged or of a rank given twice.
[[nodiscard]] Status merge_traces(std::span<const std::filesystem::path> parts, const std::filesystem::path& out);

}  // namespace maestro
