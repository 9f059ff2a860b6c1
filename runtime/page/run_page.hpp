// SPDX-License-Identifier: Apache-2.0
// A page about a run, from its record: curves by section, busy times, spikes, validations, events, data, layout and
// job. Complete in itself: no script, no link to anything outside. Pure.
//
// PW-1 (bounded): the page of a long run is at most as large as the page of a run with some thousand steps: curves are
//       thinned (CV-1), and lists show their last entries, with the number of omitted entries.
// PW-2 (as recorded): a figure's element has the recorded figure in `data-value`; its text is the figure, rounded.
// PW-3 (any text): texts are shown unchanged, with any characters; none becomes markup.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/page/curve_chart.hpp"
#include "runtime/page/lane_history.hpp"
#include "runtime/page/made_reader.hpp"
#include "runtime/page/page_parts.hpp"
#include "runtime/page/timeline.hpp"

namespace maestro {

enum class RecordedState : std::uint8_t {
  under_way,    ///< without an end in the record: the run continues, or was killed
  cut_off,      ///< without an end, and no process holds the run's folder
  finished,     ///< all steps
  interrupted,  ///< ended on request before the last step
  failed,
};

/// A figure of a section over the steps.
struct RunCurve {
  std::string section;  ///< empty: the run
  std::string metric;
  struct Value {
    std::uint64_t step = 0;
    double value = 0;
  };
  Value first, last, lowest, highest;
  std::uint64_t not_numbers = 0;  ///< steps whose value is not finite; the points do not include them
  std::vector<CurvePoint> points;
};

/// A finding of the run's guard (RunGuard), as in its event.
struct RunSpike {
  std::uint64_t step = 0;
  std::string section;
  std::string what;  ///< began, ended, lasts, not_finite, huge_norm
  double value = 0;  ///< NaN: not finite
  double usual = 0;  ///< median before
};

struct RunValidation {
  std::uint64_t step = 0;
  std::string section;
  std::map<std::string, double> metrics;
};

/// Text that a section writes after a prompt, as of a checkpoint.
struct RunText {
  std::string prompt;
  std::string section;
  std::uint64_t step = 0;
  std::string text;
};

struct RunEvent {
  std::string time;
  std::string name;
  std::string text;
};

struct RunPage {
  std::string title;  ///< the job's name
  RecordedState state = RecordedState::under_way;
  std::string error;  ///< error of a failed run
  std::uint64_t last_step = 0;
  std::vector<PageFigure> figures;
  std::vector<PageAnswer> answers;         ///< answers to validation samples, by the trained model
  std::vector<RunCurve> curves;            ///< curves in the order of the sections' first steps
  std::vector<RunCurve> busy;              ///< share of the lanes' time in passes, by section
  std::vector<RunCurve> times;             ///< the run's step_ms, makespan_ms and lower_bound_ms
  std::vector<RunLane> lane_times;         ///< lanes by name; from the steps whose lines have lanes
  bool old_step_ends = false;              ///< ends of steps include waits for devices, as recorded by earlier versions
  std::vector<RunValidation> validations;  ///< in their order
  std::vector<RunSpike> spikes;            ///< newest spikes, in their order
  std::uint64_t earlier_spikes = 0;        ///< number of spikes before
  MadePart made;                           ///< samples that the run made itself
  std::vector<RunText> texts;              ///< texts by prompt, section and step
  std::string texts_remark;                ///< origin of the texts, and the missing ones
  std::vector<RunEvent> events;            ///< in their order, without validations and spikes
  std::vector<std::string> lanes;          ///< texts of the lanes with their devices
  std::map<std::string, std::string> data;  ///< fingerprint
  std::string job;                          ///< TOML, with its overrides
  std::string command;                      ///< command that repeats the run from a file with the text of `job`
  Timeline timeline;                        ///< without slices: not shown
};

/// Returns the metrics of the sections, the usual ones first.
[[nodiscard]] std::vector<std::string> metrics_of(const RunPage& page);
/// Returns a section's validations as dots, of many only some, including the last.
[[nodiscard]] std::vector<ChartDot> validation_dots(const RunPage& page, const std::string& section,
                                                    const std::string& metric);
/// Returns the sections in colour order (colour_of()), which every drawing of the run uses.
[[nodiscard]] std::vector<std::string> sections_of(const RunPage& page);
/// Returns a sentence about records of earlier versions, after a space; empty for others.
[[nodiscard]] std::string old_step_ends_remark(const RunPage& page);
/// Returns the line about the run's state: "finished after step 300".
[[nodiscard]] std::string state_line(const RunPage& page);
/// Returns the content of <main>, which an open page may take to replace its content.
[[nodiscard]] std::string body_of(const RunPage& page);
/// Returns the complete page. `head` is appended to <head>, as HTML.
[[nodiscard]] std::string page_of(const RunPage& page, std::string_view head = {});

}  // namespace maestro
