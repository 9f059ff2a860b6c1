// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <utility>

#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/result_figures.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr std::size_t most_spikes = 100;  // number of spikes that a page lists

/// Returns milliseconds since 1970 of "2026-11-24T12:30:00.123Z"; nothing for other texts.
std::optional<std::int64_t> milliseconds_of(const std::string& time) {
  std::tm utc{};
  int ms = 0;
  if (std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
                  &utc.tm_min, &utc.tm_sec, &ms) != 7) {
    return std::nullopt;
  }
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return static_cast<std::int64_t>(timegm(&utc)) * 1000 + ms;
}

/// Returns a figure of a line; NaN for null, which JSON has for values that are not finite.
double figure_of(const JsonValue& value) {
  return value && value.null() ? std::numeric_limits<double>::quiet_NaN() : value.number();
}

/// Returns an event's "step 50, path: out/checkpoints/step-00000050".
std::string text_of_members(const Json& event) {
  std::string text;
  if (event.contains("step")) text = "step " + event.at("step").dump();
  for (const auto& [name, value] : event.items()) {
    if (name == "event" || name == "time" || name == "step") continue;
    text += (text.empty() ? "" : ", ") + name + ": " + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

std::string text_of_start(const JsonValue& event) {
  const std::string resumed = event.at("resumed_from").text();
  return "at step " + std::to_string(event.at("first_step").count()) + (resumed.empty() ? "" : ", from " + resumed) +
         "; run " + event.at("run_id").text() + ", maestro " + event.at("maestro_version").text() + ", " +
         event.at("instruction_set").text();
}

std::string duration_text(double seconds) {
  if (seconds < 120) return fixed(seconds, seconds < 10 ? 1 : 0) + " s";
  return seconds < 7200 ? fixed(seconds / 60, 1) + " min" : fixed(seconds / 3600, 1) + " h";
}

/// Returns the command that runs the job again with as many processes.
std::string command_for(const std::vector<std::string>& lanes) {
  constexpr std::string_view before = " of process ";
  unsigned long long processes = 1;
  for (const std::string& lane : lanes) {
    const std::size_t at = lane.rfind(before);
    if (at == std::string::npos) continue;
    processes = std::max(processes, std::strtoull(lane.c_str() + at + before.size(), nullptr, 10) + 1);
  }
  return "maestro train job.toml --fresh" + (processes > 1 ? " --processes " + std::to_string(processes) : "");
}

template <class Curves>
auto& curve_of(Curves& curves, const std::string& section, const std::string& metric) {
  const auto known = std::ranges::find_if(
      curves, [&](const auto& curve) { return curve.found.section == section && curve.found.metric == metric; });
  if (known != curves.end()) return *known;
  auto& curve = curves.emplace_back();
  curve.found.section = section;
  curve.found.metric = metric;
  return curve;
}

template <class Curve>
void add_value(Curve& curve, std::uint64_t step, double value) {
  RunCurve& found = curve.found;
  if (!std::isfinite(value)) {
    ++found.not_numbers;
    return;
  }
  const RunCurve::Value now{step, value};
  const bool first = curve.points.points().empty();
  if (first) found.first = now;
  if (first || value < found.lowest.value) found.lowest = now;
  if (first || value > found.highest.value) found.highest = now;
  found.last = now;
  curve.points.add(step, value);
}

template <class Curves>
std::vector<RunCurve> finished_curves(const Curves& curves) {
  std::vector<RunCurve> out;
  for (const auto& curve : curves) {
    out.push_back(curve.found);
    out.back().points = curve.points.points();
  }
  return out;
}

/// Passes a line of a file, which messages call `name`, to `read`.
template <class Read>
Status take(std::string_view text, const std::string& name, const Read& read) {
  const Result<bool> taken = read_json(text, name, ErrorCode::corrupt, [&](const JsonValue& line) {
    read(line);
    return true;
  });
  return taken ? Status() : Status(taken.error());
}

}  // namespace

RunReader::RunReader(fs::path run_folder)
    : folder_(std::move(run_folder)),
      steps_tail_(folder_ / record_folder / steps_file),
      events_tail_(folder_ / record_folder / events_file),
      made_(folder_) {}

Status RunReader::refresh() {
  std::error_code failure;
  if (!fs::is_directory(folder_ / record_folder, failure)) {
    return Error{ErrorCode::not_found, folder_.string() + " has no record of a run, " +
                                           (folder_ / record_folder).string() +
                                           "; give the folder of a run, train.out of its job"};
  }
  // First the events: they have the starts after pauses.
  Status read = events_tail_.read([&](std::string_view line) { return take_event(line); }, [&] { events_ = {}; });
  if (!read) return read;
  read = made_.refresh();
  if (!read) return read;
  return steps_tail_.read([&](std::string_view line) { return take_step(line); },
                          [&] {
                            steps_ = {};
                            made_.forget_steps();
                          });
}

Status RunReader::take_step(std::string_view text) {
  const std::string name = (folder_ / record_folder / steps_file).string() + ", line " + std::to_string(++steps_.lines);
  return take(text, name, [&](const JsonValue& line) { take_step(line); });
}

void RunReader::take_step(const JsonValue& line) {
  const std::uint64_t step = line.at("step").count();
  const double tokens = line.at("tokens").number();
  steps_.samples += line.at("samples").number();
  steps_.tokens += tokens;
  const std::int64_t now = milliseconds_of(line.at("time").text()).value_or(steps_.last_ms);
  std::optional<double> between_ms;
  if (steps_.lines > 1 && std::ranges::find(events_.first_steps, step) == events_.first_steps.end()) {
    between_ms = static_cast<double>(now - steps_.last_ms);
    steps_.seconds += *between_ms / 1000;
    steps_.timed_tokens += tokens;
  }
  steps_.last_ms = now;
  steps_.last = step;
  take_times(step, line, between_ms);
  if (const JsonValue lanes = line.at("lanes")) take_lanes(step, lanes);
  if (const JsonValue made = line.at("made"); made.json().contains("lengths")) made_.take_step(made);
  for (const auto& [section, metrics] : line.at("sections").members()) {
    for (const auto& [metric, figure] : metrics.members()) {
      add_value(curve_of(steps_.curves, section, metric), step, figure_of(figure));
    }
  }
}

void RunReader::take_times(std::uint64_t step, const JsonValue& line, std::optional<double> between_ms) {
  if (const JsonValue recorded = line.at("step_ms")) between_ms = recorded.number();  // earlier versions lack it
  const double bound_ms = line.at("lower_bound_ms").number();
  if (between_ms) {
    add_value(curve_of(steps_.times, "", "step_ms"), step, *between_ms);
    steps_.step_times.add(*between_ms, bound_ms);
  }
  add_value(curve_of(steps_.times, "", "makespan_ms"), step, line.at("makespan_ms").number());
  add_value(curve_of(steps_.times, "", "lower_bound_ms"), step, bound_ms);
}

void RunReader::take_lanes(std::uint64_t step, const JsonValue& lanes) {
  std::map<std::string, LaneSpan> sections;
  for (const auto& [name, times] : lanes.members()) {
    const JsonValue step_end = times.at("step_end_ms");
    steps_.old_step_ends |= !step_end;
    LaneSpan span{step, step, times.at("busy_ms").number(), (step_end ? step_end : times.at("step_ms")).number(), {}};
    if (const JsonValue waits = times.at("wait_ms")) {
      for (const auto& [on, ms] : waits.members()) span.wait_ms[on] = ms.number();
    }
    steps_.lanes[name].add(span);
    sections[std::string(section_of_stage(name.substr(0, name.rfind('/'))))].append(span);
  }
  for (const auto& [section, span] : sections) {
    if (span.total_ms() > 0) add_value(curve_of(steps_.busy, section, "busy"), step, span.busy_ms / span.total_ms());
  }
}

Status RunReader::take_event(std::string_view text) {
  const std::string name =
      (folder_ / record_folder / events_file).string() + ", line " + std::to_string(++events_.lines);
  return take(text, name, [&](const JsonValue& line) { take_event(line); });
}

void RunReader::take_event(const JsonValue& line) {
  const std::string kind = line.at("event").text();
  if (kind == "validation") return take_validation(line);
  if (kind == "spike") return take_spike(line);
  if (kind == "rehearsed") {  // a figure
    events_.step_ms = {figure_of(line.at("measured_step_ms")), figure_of(line.at("step_ms"))};
    return;
  }
  if (kind == "began") take_start(line);
  if (kind == "failed") events_.error = line.at("error").text("");
  if (kind == "failed") events_.state = RecordedState::failed;
  if (kind == "finished") {
    events_.state = line.at("interrupted").flag(false) ? RecordedState::interrupted : RecordedState::finished;
  }
  const std::string time = line.at("time").text();
  events_.events.push_back({time, kind, kind == "began" ? text_of_start(line) : text_of_members(line.json())});
}

void RunReader::take_validation(const JsonValue& line) {
  RunValidation validation{line.at("step").count(), line.at("section").text(), {}};
  for (const auto& [metric, figure] : line.at("metrics").members()) validation.metrics[metric] = figure_of(figure);
  std::erase_if(events_.validations, [&](const RunValidation& earlier) {  // a resumed run has repeated it
    return earlier.section == validation.section && earlier.step >= validation.step;
  });
  events_.validations.push_back(std::move(validation));
}

void RunReader::take_spike(const JsonValue& line) {
  if (events_.spikes.size() == most_spikes) {
    events_.spikes.erase(events_.spikes.begin());
    ++events_.earlier_spikes;
  }
  events_.spikes.push_back({line.at("step").count(), line.at("section").text(), line.at("what").text(),
                            figure_of(line.at("value")), figure_of(line.at("usual"))});
}

void RunReader::take_start(const JsonValue& line) {
  events_.state = RecordedState::under_way;
  events_.error.clear();
  events_.step_ms.reset();
  events_.first_steps.push_back(line.at("first_step").count());
  events_.lanes = line.at("lanes").texts();
  events_.data = line.at("data").texts_by_key();
  events_.job = line.at("job_file").text();
  const JobDocument job = [&] {
    try {
      return JobDocument::parse(events_.job, "the job of the record");
    } catch (const JobError& failure) {
      line.at("job_file").fail(std::string("it cannot be read: ") + failure.what());
    }
  }();
  events_.title = job.root().text("name", "");
  events_.planned_steps = 0;
  for (const auto& [key, value] : job.settings()) {
    if (key == "train.steps") events_.planned_steps = std::strtoull(value.c_str(), nullptr, 10);
    if (key.starts_with("data.")) events_.data.emplace(key, value);
  }
  events_.stages = TrainingStages::read(job.root());
  if (events_.stages.given()) events_.planned_steps = static_cast<std::uint64_t>(events_.stages.steps());
}

std::vector<PageFigure> RunReader::figures() const {
  const auto whole = [](double value) { return fixed(value, 0); };
  std::vector<PageFigure> out = result_figures(events_.validations, finished_curves(steps_.curves));
  out.push_back({"Steps", std::to_string(steps_.last), "", std::to_string(steps_.last)});
  if (events_.planned_steps > 0) out.back().remark = "of " + std::to_string(events_.planned_steps);
  if (events_.stages.given()) {
    out.back().remark +=
        "; " + events_.stages.line(events_.stages.that_did(std::max<std::uint64_t>(steps_.last, 1)) - 1);
  }
  if (steps_.lines == 0) return out;
  out.push_back({"Samples", whole(steps_.samples), "read", whole(steps_.samples)});
  out.push_back({"Tokens", whole(steps_.tokens), "read", whole(steps_.tokens)});
  if (steps_.seconds > 0) {
    out.push_back({"Time", duration_text(steps_.seconds),
                   "from the end of the first step on, without pauses before a start", number_text(steps_.seconds)});
    const double speed = steps_.timed_tokens / steps_.seconds;
    out.push_back({"Tokens per second", whole(speed), "in that time", number_text(speed)});
  }
  if (const auto steady = steps_.step_times.steady()) {
    out.push_back({"Step time / bound", fixed(steady->over_bound(), 3),
                   "medians of the last " + std::to_string(steady->steps) + " steps: " + fixed(steady->step_ms, 1) +
                       " ms from end to end, over " + fixed(steady->lower_bound_ms, 1) +
                       " ms that a step by itself takes at least",
                   number_text(steady->over_bound())});
  }
  if (events_.step_ms) {
    const auto& [measured, planned] = *events_.step_ms;
    out.push_back({"Step", fixed(measured, 1) + " ms",
                   "median of the last steps; planned " + fixed(planned, 1) + " ms, by a rehearsal",
                   number_text(measured)});
  }
  for (const Curve& curve : steps_.curves) {
    if (curve.found.metric != "loss" || curve.points.points().empty()) continue;
    const RunCurve::Value& last = curve.found.last;
    if (std::ranges::find(out, curve.found.section + " loss", &PageFigure::name) != out.end()) continue;
    out.push_back({curve.found.section + " loss", shortened(last.value), "step " + std::to_string(last.step),
                   number_text(last.value)});
  }
  for (auto row = events_.validations.begin(); row != events_.validations.end(); ++row) {
    const auto loss = row->metrics.find("loss");
    const bool last = std::none_of(row + 1, events_.validations.end(),
                                   [&](const RunValidation& later) { return later.section == row->section; });
    if (!last || loss == row->metrics.end()) continue;
    out.push_back({row->section + " validation loss", shortened(loss->second),
                   "after step " + std::to_string(row->step), number_text(loss->second)});
  }
  return out;
}

RunPage RunReader::page() const {
  RunPage out;
  out.title = events_.title.empty() ? folder_.filename().string() : events_.title;
  out.state = events_.state;
  out.error = events_.error;
  out.figures = figures();
  out.curves = finished_curves(steps_.curves);
  out.busy = finished_curves(steps_.busy);
  out.old_step_ends = steps_.old_step_ends;
  out.times = finished_curves(steps_.times);
  for (const auto& [name, history] : steps_.lanes) out.lane_times.push_back({name, history.spans()});
  out.validations = events_.validations;
  out.spikes = events_.spikes;
  out.earlier_spikes = events_.earlier_spikes;
  out.made = made_.part();
  out.events = events_.events;
  out.lanes = events_.lanes;
  out.data = events_.data;
  out.job = events_.job;
  out.last_step = steps_.last;
  out.command = command_for(events_.lanes);
  return out;
}

Result<RunPage> read_run_page(const fs::path& run_folder) {
  RunReader reader(run_folder);
  if (const Status read = reader.refresh(); !read) return read.error();
  return reader.page();
}

}  // namespace maestro
