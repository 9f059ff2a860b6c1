// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/observe/output_file.hpp"

namespace maestro {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t nanoseconds(std::chrono::nanoseconds duration) {
  return duration.count();
}
std::int64_t nanoseconds(TraceTime time) {
  return nanoseconds(std::chrono::nanoseconds(time.time_since_epoch()));
}

// Names may hold any bytes of a job file; a trace must still be valid JSON.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string_view name_of(TraceCategory category) {
  switch (category) {
    case TraceCategory::forward:
      return "forward";
    case TraceCategory::backward:
      return "backward";
    case TraceCategory::step:
      return "step";
    case TraceCategory::wait:
      return "wait";
    case TraceCategory::transfer:
      return "transfer";
    case TraceCategory::source:
      return "source";
    case TraceCategory::plan:
      return "plan";
  }
  return "?";
}

TraceClock this_trace_clock() {
  TraceClock clock;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, clock.host);
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  const auto system = std::chrono::system_clock::now().time_since_epoch();
  clock.system_minus_steady = std::chrono::nanoseconds(system) - std::chrono::nanoseconds(steady);
  return clock;
}

TraceRecorder::TraceRecorder(ProcessId process, std::string process_name, TraceOptions options)
    : process_(process),
      process_name_(std::move(process_name)),
      on_(options.on),
      max_events_(options.max_events),
      clock_(options.clock ? std::move(*options.clock) : this_trace_clock()) {}

TrackId TraceRecorder::track(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find(tracks_.begin(), tracks_.end(), name);
  const auto index = static_cast<TrackId::value_type>(known - tracks_.begin());
  if (known == tracks_.end()) tracks_.emplace_back(name);
  return TrackId(index);
}

void TraceRecorder::slice(const TraceSlice& slice, TraceArgs args) {
  if (!on_) return;
  Event event;
  event.category = slice.category;
  event.track = slice.track;
  event.start_ns = nanoseconds(slice.start);
  event.duration_ns = std::max<std::int64_t>(0, nanoseconds(slice.end) - event.start_ns);
  event.name = slice.name;
  event.args = copy_of(args);
  record(std::move(event));
}

void TraceRecorder::flow_start(TrackId track, std::uint64_t flow, TraceTime time, std::string_view name) {
  if (!on_) return;
  Event event;
  event.kind = Kind::flow_start;
  event.track = track;
  event.start_ns = nanoseconds(time);
  event.flow = flow;
  event.name = name;
  record(std::move(event));
}

void TraceRecorder::flow_end(TrackId track, std::uint64_t flow, TraceTime time, std::string_view name) {
  if (!on_) return;
  Event event;
  event.kind = Kind::flow_end;
  event.track = track;
  event.start_ns = nanoseconds(time);
  event.flow = flow;
  event.name = name;
  record(std::move(event));
}

void TraceRecorder::counter(std::string_view name, TraceTime time, double value) {
  if (!on_ || !std::isfinite(value)) return;
  Event event;
  event.kind = Kind::counter;
  event.start_ns = nanoseconds(time);
  event.value = value;
  event.name = name;
  record(std::move(event));
}

void TraceRecorder::describe(const std::string& key, std::string value) {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  about_[key] = std::move(value);
}

std::size_t TraceRecorder::recorded() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

std::size_t TraceRecorder::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

TraceRecorder::Args TraceRecorder::copy_of(TraceArgs args) {
  Args out;
  out.reserve(args.size());
  for (const auto& arg : args) {
    if (const auto* integer = std::get_if<std::int64_t>(&arg.value)) {
      out.emplace_back(arg.key, *integer);
    } else {
      out.emplace_back(arg.key, std::string(std::get<std::string_view>(arg.value)));
    }
  }
  return out;
}

void TraceRecorder::record(Event event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < max_events_) {
    events_.push_back(std::move(event));
  } else {
    ++dropped_;
  }
}

std::string TraceRecorder::line_of(const Event& event) {
  Json line;
  switch (event.kind) {
    case Kind::slice:
      line = {{"ph", "X"}, {"cat", name_of(event.category)}, {"dur_ns", event.duration_ns}};
      break;
    case Kind::flow_start:
      line = {{"ph", "s"}, {"cat", "transfer"}, {"id", std::to_string(event.flow)}};
      break;
    case Kind::flow_end:
      line = {{"ph", "f"}, {"cat", "transfer"}, {"id", std::to_string(event.flow)}, {"bp", "e"}};
      break;
    case Kind::counter:
      line = {{"ph", "C"}, {"args", {{"value", event.value}}}};
      break;
  }
  line["name"] = event.name;
  line["track"] = event.track.value();
  line["ts_ns"] = event.start_ns;
  for (const auto& [key, value] : event.args) {
    Json& member = line["args"][key];
    std::visit([&member](const auto& held) { member = held; }, value);
  }
  return dumped(line) + '\n';
}

Status TraceRecorder::write_part(const std::filesystem::path& path) const {
  Json header{{"rank", process_.value()},
              {"process", process_name_},
              {"host", clock_.host},
              {"system_minus_steady_ns", clock_.system_minus_steady.count()}};
  std::deque<Event> events;
  {
    const std::lock_guard lock(mutex_);
    events = events_;
    header["tracks"] = tracks_;
    header["dropped"] = dropped_;
    header["about"] = about_;
  }
  header["events"] = events.size();
  auto file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  if (auto appended = file->append(dumped(header) + '\n'); !appended.ok()) return appended;
  for (const auto& event : events) {
    if (auto appended = file->append(line_of(event)); !appended.ok()) return appended;
  }
  return file->commit();
}

TraceSpan::TraceSpan(TraceRecorder& recorder, TrackId track, std::string_view name, TraceCategory category,
                     TraceArgs args)
    : recorder_(recorder) {
  if (!recorder_.on()) return;
  event_.category = category;
  event_.track = track;
  event_.name = name;
  event_.args = TraceRecorder::copy_of(args);
  event_.start_ns = nanoseconds(std::chrono::steady_clock::now());
}

TraceSpan::~TraceSpan() {
  if (!recorder_.on()) return;
  event_.duration_ns = nanoseconds(std::chrono::steady_clock::now()) - event_.start_ns;
  recorder_.record(std::move(event_));
}

void TraceSpan::annotate(const TraceArg& arg) {
  if (!recorder_.on()) return;
  auto copied = TraceRecorder::copy_of({arg});
  event_.args.push_back(std::move(copied.front()));
}

}  // namespace maestro
