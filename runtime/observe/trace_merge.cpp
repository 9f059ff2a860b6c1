// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/observe/output_file.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {
namespace {

using Json = nlohmann::ordered_json;

constexpr double ns_per_us = 1000.0;

struct Part {
  std::filesystem::path path;
  std::uint32_t rank = 0;
  std::string process;
  std::string host;
  std::int64_t system_minus_steady_ns = 0;
  std::vector<std::string> tracks;
  std::uint64_t dropped = 0;
  std::map<std::string, std::string> about;
};

/// An event as written; parsed again only when it is printed, which keeps memory near the files' size.
struct Entry {
  std::int64_t ts_ns = 0;
  bool slice = false;
  std::int64_t dur_ns = 0;
  std::uint32_t rank = 0;
  std::string line;
};

Error damaged(const std::filesystem::path& path, std::size_t line) {
  return {ErrorCode::corrupt, path.string() + ":" + std::to_string(line) + ": not a trace part of maestro; run again " +
                                  "with tracing on, or leave this part out"};
}

/// Reads the header line. Throws nlohmann's exception if a member is missing or of another type.
Part part_of(const Json& header, const std::filesystem::path& path) {
  Part part;
  part.path = path;
  header.at("rank").get_to(part.rank);
  header.at("process").get_to(part.process);
  header.at("host").get_to(part.host);
  header.at("system_minus_steady_ns").get_to(part.system_minus_steady_ns);
  header.at("tracks").get_to(part.tracks);
  header.at("dropped").get_to(part.dropped);
  header.at("about").get_to(part.about);
  return part;
}

Entry entry_of(const Json& event, const Part& part, std::string line) {
  Entry entry;
  event.at("ts_ns").get_to(entry.ts_ns);
  entry.slice = event.at("ph") == "X";
  if (entry.slice) event.at("dur_ns").get_to(entry.dur_ns);
  const bool known_track = event.at("track").get<std::size_t>() < part.tracks.size();
  if (!known_track && event.at("ph") != "C") throw std::out_of_range("track");
  entry.rank = part.rank;
  entry.line = std::move(line);
  return entry;
}

class TraceMerge {
 public:
  Status read(const std::filesystem::path& path);
  Status write(const std::filesystem::path& path);

 private:
  Status add_part(Part part);
  Status append_event(OutputFile& file, const Json& event);
  Status append_names(OutputFile& file);
  [[nodiscard]] std::int64_t shift_of(const Part& part) const;

  std::vector<Part> parts_;
  std::map<std::string, std::int64_t> clock_of_host_;  // system minus steady, of the host's first part
  std::vector<Entry> entries_;
  bool first_event_ = true;
};

Status TraceMerge::read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return Error{ErrorCode::not_found, "cannot read the trace part " + path.string()};
  std::string line;
  std::size_t number = 1;
  try {
    std::getline(file, line);
    const auto header = Json::parse(line);
    const auto events = header.at("events").get<std::size_t>();
    if (auto added = add_part(part_of(header, path)); !added.ok()) return added;
    const auto& part = parts_.back();
    const auto shift = shift_of(part);
    for (std::size_t i = 0; i < events; ++i) {
      ++number;
      if (!std::getline(file, line)) return damaged(path, number);
      const auto event = Json::parse(line);
      entries_.push_back(entry_of(event, part, std::move(line)));
      entries_.back().ts_ns += shift;
    }
  } catch (const std::exception&) {
    return damaged(path, number);
  }
  return {};
}

Status TraceMerge::add_part(Part part) {
  for (const auto& other : parts_) {
    if (other.rank != part.rank) continue;
    return Error{ErrorCode::invalid_argument, "two trace parts are of rank " + std::to_string(part.rank) + ": " +
                                                  other.path.string() + " and " + part.path.string()};
  }
  clock_of_host_.try_emplace(part.host, part.system_minus_steady_ns);
  parts_.push_back(std::move(part));
  return {};
}

// On a host all parts share the steady clock exactly; wall time is only as exact as the machines' synchronisation.
std::int64_t TraceMerge::shift_of(const Part& part) const {
  return clock_of_host_.at(part.host) - clock_of_host_.at(parts_.front().host);
}

Status TraceMerge::append_event(OutputFile& file, const Json& event) {
  const std::string_view separator = std::exchange(first_event_, false) ? "\n" : ",\n";
  if (auto appended = file.append(separator); !appended.ok()) return appended;
  return file.append(event.dump());
}

Status TraceMerge::append_names(OutputFile& file) {
  const auto metadata = [&](std::string_view name, std::uint32_t rank, std::size_t track, Json args) {
    return append_event(file, {{"ph", "M"}, {"name", name}, {"pid", rank}, {"tid", track}, {"args", std::move(args)}});
  };
  for (const auto& part : parts_) {
    if (auto s = metadata("process_name", part.rank, 0, {{"name", part.process}}); !s.ok()) return s;
    if (auto s = metadata("process_sort_index", part.rank, 0, {{"sort_index", part.rank}}); !s.ok()) return s;
    for (std::size_t track = 0; track < part.tracks.size(); ++track) {
      if (auto s = metadata("thread_name", part.rank, track + 1, {{"name", part.tracks[track]}}); !s.ok()) return s;
      if (auto s = metadata("thread_sort_index", part.rank, track + 1, {{"sort_index", track}}); !s.ok()) return s;
    }
  }
  return {};
}

Status TraceMerge::write(const std::filesystem::path& path) {
  // A slice precedes the arrows that bind to it, and the outer of two slices that start together precedes the inner.
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.ts_ns, !a.slice, -a.dur_ns) < std::tuple(b.ts_ns, !b.slice, -b.dur_ns);
  });
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; });
  auto file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  if (auto appended = file->append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["); !appended.ok()) return appended;
  if (auto appended = append_names(*file); !appended.ok()) return appended;
  const std::int64_t origin = entries_.empty() ? 0 : entries_.front().ts_ns;
  for (const auto& entry : entries_) {
    auto event = Json::parse(entry.line);
    event["pid"] = entry.rank;
    event["tid"] = event.at("ph") == "C" ? 0 : event.at("track").get<std::size_t>() + 1;
    event["ts"] = static_cast<double>(entry.ts_ns - origin) / ns_per_us;
    if (entry.slice) event["dur"] = static_cast<double>(entry.dur_ns) / ns_per_us;
    for (const auto* own : {"track", "ts_ns", "dur_ns"}) event.erase(own);
    if (auto appended = append_event(*file, event); !appended.ok()) return appended;
  }
  std::uint64_t dropped = 0;
  std::map<std::string, std::string> about;
  for (const auto& part : parts_) {
    dropped += part.dropped;
    about.insert(part.about.begin(), part.about.end());
  }
  Json other{{"dropped_events", dropped}};
  other.update(Json(about));
  if (auto appended = file->append("\n],\"otherData\":" + other.dump() + "}\n"); !appended.ok()) return appended;
  return file->commit();
}

}  // namespace

Status merge_traces(std::span<const std::filesystem::path> parts, const std::filesystem::path& out) {
  TraceMerge merge;
  for (const auto& part : parts) {
    if (auto read = merge.read(part); !read.ok()) return read;
  }
  return merge.write(out);
}

}  // namespace maestro
