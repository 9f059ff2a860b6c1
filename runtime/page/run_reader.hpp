// SPDX-License-Identifier: Apache-2.0
// Reads the record of a run for a page: once, or repeatedly while the run continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/job/training_stages.hpp"
#include "runtime/observe/step_times.hpp"
#include "runtime/page/run_page.hpp"
#include "runtime/record/record_tail.hpp"

namespace maestro {

class JsonValue;

/// Memory does not grow with the steps, and a call of refresh() costs as much as the new lines. Not thread-safe.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path run_folder);
  /// Reads new lines of the record. A record that was cut (LN-2) is read anew. Errors name the file, and the number of
  /// a line that is not valid; a folder without a record: not_found.
  [[nodiscard]] Status refresh();
  /// Returns the page of all lines read so far, without a timeline.
  [[nodiscard]] RunPage page() const;

 private:
  struct Curve {
    RunCurve found;  // without the points
    ThinnedCurve points;
  };
  /// State read from steps.jsonl.
  struct Steps {
    std::uint64_t lines = 0, last = 0;
    double samples = 0, tokens = 0;
    double seconds = 0;        // time between steps, without the pauses before a start
    double timed_tokens = 0;   // tokens in these seconds
    std::int64_t last_ms = 0;  // time of the last step
    StepTimes step_times;
    std::vector<Curve> curves, busy, times;
    std::map<std::string, LaneHistory> lanes;  // by name
    bool old_step_ends = false;                // some lines are from a version that counted waits for devices there
  };
  /// State read from events.jsonl.
  struct Events {
    std::uint64_t lines = 0, planned_steps = 0;
    TrainingStages stages;  // of the job
    std::vector<std::uint64_t> first_steps;
    RecordedState state = RecordedState::under_way;
    std::string error, title;
    std::optional<std::pair<double, double>> step_ms;  // measured, and as rehearsed
    std::vector<RunValidation> validations;
    std::vector<RunSpike> spikes;
    std::uint64_t earlier_spikes = 0;
    std::vector<RunEvent> events;
    std::vector<std::string> lanes;
    std::map<std::string, std::string> data;
    std::string job;
  };
  [[nodiscard]] Status take_step(std::string_view text);
  void take_step(const JsonValue& line);
  /// Takes a step's times. `between_ms`: time since the line before, if that is the step before.
  void take_times(std::uint64_t step, const JsonValue& line, std::optional<double> between_ms);
  void take_lanes(std::uint64_t step, const JsonValue& lanes);
  [[nodiscard]] Status take_event(std::string_view text);
  void take_event(const JsonValue& line);
  void take_start(const JsonValue& line);
  void take_validation(const JsonValue& line);
  void take_spike(const JsonValue& line);
  [[nodiscard]] std::vector<PageFigure> figures() const;

  std::filesystem::path folder_;
  RecordTail steps_tail_, events_tail_;
  MadeReader made_;
  Steps steps_;
  Events events_;
};

/// Returns the page of the record in a run's folder (train.out). Errors as of RunReader::refresh().
[[nodiscard]] Result<RunPage> read_run_page(const std::filesystem::path& run_folder);

}  // namespace maestro
