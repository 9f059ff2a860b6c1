// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace_file.hpp"

#include <fstream>
#include <utility>

#include "runtime/core/json_value.hpp"

namespace maestro {

namespace {

using Json = nlohmann::json;
using Thread = std::pair<std::uint64_t, std::uint64_t>;  // process and thread id in the trace

constexpr double ms_per_us = 1e-3;
constexpr int event_depth = 2;  // {"traceEvents": [{...}]}

class Slices {
 public:
  Slices(const std::string& file, const std::function<void(const TraceFileSlice&)>& take) : file_(file), take_(take) {}

  void add(const Json& event) {
    const std::string kind = event.value("ph", "");
    if (kind == "M" && event.value("name", "") == "thread_name") {
      tracks_[thread_of(event)] = event.at("args").at("name").get<std::string>();
    }
    if (kind == "X") take_(slice_of(event));
  }

 private:
  [[nodiscard]] Thread thread_of(const Json& event) const {
    const JsonValue value(event, file_);
    return {value.at("pid").count(), value.at("tid").count()};
  }
  [[nodiscard]] TraceFileSlice slice_of(const Json& event) const {
    TraceFileSlice slice;
    const auto track = tracks_.find(thread_of(event));
    if (track != tracks_.end()) slice.track = track->second;
    slice.name = event.at("name").get<std::string>();
    slice.category = event.value("cat", "");
    slice.start_ms = event.at("ts").get<double>() * ms_per_us;
    slice.length_ms = event.at("dur").get<double>() * ms_per_us;
    if (!event.contains("args")) return slice;
    for (const auto& [key, value] : event.at("args").items()) {
      if (value.is_number_integer()) slice.args.emplace(key, value.get<std::int64_t>());
      if (value.is_string()) slice.args.emplace(key, value.get<std::string>());
    }
    return slice;
  }

  const std::string& file_;
  const std::function<void(const TraceFileSlice&)>& take_;
  std::map<Thread, std::string> tracks_;
};

TraceAbout about(const JsonValue& rest) {
  TraceAbout about;
  const JsonValue other = rest.at("otherData");
  if (!other) return about;
  for (const auto& [key, value] : other.members()) {
    if (value.json().is_string()) about.facts.emplace(key, value.text());
  }
  about.dropped = other.at("dropped_events").count(UINT64_MAX, 0);
  return about;
}

}  // namespace

std::int64_t TraceFileSlice::number(const std::string& key, std::int64_t otherwise) const {
  const auto found = args.find(key);
  const auto* value = found == args.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value == nullptr ? otherwise : *value;
}

std::string_view TraceFileSlice::text(const std::string& key) const {
  const auto found = args.find(key);
  const auto* value = found == args.end() ? nullptr : std::get_if<std::string>(&found->second);
  return value == nullptr ? std::string_view() : *value;
}

Result<TraceAbout> for_trace_slices(const std::filesystem::path& trace,
                                    const std::function<void(const TraceFileSlice&)>& take) {
  std::ifstream file(trace, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, "cannot read the trace " + trace.string()};
  const std::string name = trace.string();
  Slices slices(name, take);
  try {
    const auto each = [&](int depth, Json::parse_event_t part, Json& value) {
      if (depth != event_depth || part != Json::parse_event_t::object_end) return true;
      slices.add(value);
      return false;
    };
    const Json rest = Json::parse(file, each);
    if (rest.contains("traceEvents")) return about(JsonValue(rest, name));
    return Error{ErrorCode::corrupt, name + " has no traceEvents; it is not a trace of maestro"};
  } catch (const JobError& problem) {
    return Error{ErrorCode::corrupt, problem.what()};
  } catch (const Json::exception&) {
    return Error{ErrorCode::corrupt,
                 name + " is not a trace of maestro, or incomplete; `maestro train JOB.toml --trace FILE` writes one"};
  }
}

}  // namespace maestro
