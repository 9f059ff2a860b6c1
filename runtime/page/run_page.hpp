// SPDX-License-Identifier: Apache-2.0
// A page about a run, from its record: curves by section, what was busy, spikes, validations, events, data, layout and
// job. Complete in itself: no script, no link to anything outside. Pure.
//
// PW-1 (bounded): a page has at most as many bytes for a long run as for one of some thousand steps: curves are thinned
//       (CV-1), and of lists the last entries stand, with the number of those left out.
// PW-2 (as recorded): a figure's element has the figure as recorded in `data-value`, and its text is that, rounded.
// PW-3 (any text): texts are shown as they are, with any characters; none becomes markup.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/page/curve.hpp"
#include "runtime/page/lane_history.hpp"
#include "runtime/page/page_parts.hpp"
#include "runtime/page/timeline.hpp"

namespace maestro {

enum class RecordedState : std::uint8_t {
  under_way,    ///< the record has no end: the run goes on, or was killed
  cut_off,      ///< no end, and no process holds the run's folder
  finished,     ///< all steps
  interrupted,  ///< ended on request before the last step
  failed,
};

/// A figure of a section over the steps.
struct RunCurve {
  std::string section;  ///< empty: of the run
  std::string metric;
  struct Value {
    std::uint64_t step = 0;
    double value = 0;
  };
  Value first, last, lowest, highest;
  std::uint64_t not_numbers = 0;  ///< steps whose value is no finite number; they are in none of the others
  std::vector<CurvePoint> points;
};

/// A finding of the run's guard (RunGuard), as its event has it.
struct RunSpike {
  std::uint64_t step = 0;
  std::string section;
  std::string what;  ///< began, ended, lasts, not_finite, huge_norm
  double value = 0;  ///< NaN: not finite
  double usual = 0;  ///< its median before
};

struct RunValidation {
  std::uint64_t step = 0;
  std::string section;
  std::map<std::string, double> metrics;
};

/// What a section writes behind a prompt as of a checkpoint.
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
  std::string error;  ///< of a run that failed
  std::uint64_t last_step = 0;
  std::vector<PageFigure> figures;
  std::vector<PageAnswer> answers;         ///< to validation samples, by the trained model
  std::vector<RunCurve> curves;            ///< in the order of the sections' first steps
  std::vector<RunCurve> utilization;       ///< by section: share of the makespan in which its lanes were busy
  std::vector<RunCurve> times;             ///< of the run: makespan_ms, lower_bound_ms
  std::vector<RunLane> lane_times;         ///< by name; of the steps whose lines have lanes
  std::vector<RunValidation> validations;  ///< in their order
  std::vector<RunSpike> spikes;            ///< in their order, the newest
  std::uint64_t earlier_spikes = 0;        ///< before those
  std::vector<RunText> texts;              ///< by prompt, section and step
  std::string texts_remark;                ///< how they came about, and what is missing
  std::vector<RunEvent> events;            ///< in their order, but for validations and spikes
  std::vector<std::string> lanes;
  std::map<std::string, std::string> data;  ///< fingerprint
  std::string job;                          ///< TOML, with its overrides
  std::string command;                      ///< that repeats the run from a file of that text
  Timeline timeline;                        ///< without slices: not shown
};

/// Returns the line about the run's state: "finished after step 300".
[[nodiscard]] std::string state_line(const RunPage& page);
/// Returns the content of <main>, which a page that is open may take in place of its own.
[[nodiscard]] std::string body_of(const RunPage& page);
/// Returns the whole page. `head` is appended to <head>, as HTML.
[[nodiscard]] std::string page_of(const RunPage& page, std::string_view head = {});

}  // namespace maestro
