// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/workload_file.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/relative_speeds.hpp"

namespace maestro {

using nlohmann::json;

namespace {

constexpr std::size_t largest_workload = std::size_t{1} << 30;  // bytes: millions of samples
constexpr std::size_t longest_cycle = 480;                      // bytes, in a message
constexpr std::int64_t most_lanes = 65'536;
constexpr double least_speed = 1e-3;
constexpr double longest_ms = 1e9;                   // 11 days; sums of more would lose the microseconds
constexpr std::int64_t most_places = 1'000'000'000;  // slots or tasks in flight; more is unlimited

/// Sections and edges in the order of the file, then sorted.
struct DraftGraph {
  std::vector<WorkloadSection> sections;
  std::vector<WorkloadEdge> edges;
};

double milliseconds(const JsonValue& time) {
  const nlohmann::json& ms = time.json();
  if (!ms.is_number() || !(ms >= 0 && ms <= longest_ms)) time.expected("a time from 0 to 1e9 milliseconds");
  return time.number();
}

std::vector<std::string> names_of(const std::vector<WorkloadSection>& sections) {
  std::vector<std::string> names;
  for (const WorkloadSection& section : sections) names.push_back(section.name);
  return names;
}

std::size_t section_named(const std::string& name, const std::vector<WorkloadSection>& sections, const JsonValue& place,
                          const std::string& says) {
  for (std::size_t at = 0; at < sections.size(); ++at) {
    if (sections[at].name == name) return at;
  }
  const std::vector<std::string> names = names_of(sections);
  place.fail(says + nearest_text(name, names));
}

/// Reads a number, or a list of different numbers.
std::vector<int> read_lane_devices(const JsonValue& place) {
  const auto number = [](const JsonValue& device) { return static_cast<int>(device.whole_number(0, INT32_MAX)); };
  if (!place.json().is_array()) return {number(place)};
  std::vector<int> devices;
  for (const JsonValue& item : place.items()) {
    const int device = number(item);
    if (std::ranges::find(devices, device) != devices.end()) {
      item.fail("device " + std::to_string(device) + " is in the list already");
    }
    devices.push_back(device);
  }
  if (devices.empty()) place.fail("a replica needs a device");
  return devices;
}

/// Reads the speeds of a section's replicas. The fastest must be 1: times are for the fastest lanes.
void read_speeds(const JsonValue& place, WorkloadSection& section) {
  std::vector<double> speeds;
  for (const JsonValue& speed : place.items()) speeds.push_back(speed.number(least_speed, 1));
  if (static_cast<std::int64_t>(speeds.size()) != section.replicas) {
    place.fail("one speed per replica: " + std::to_string(speeds.size()) + " for " + std::to_string(section.replicas) +
               " replicas");
  }
  RelativeSpeeds relative = relative_speeds(std::move(speeds));
  if (relative.fastest != 1) place.fail("times are those on the fastest replicas, so the highest speed must be 1");
  section.speeds = std::move(relative.speeds);
}

WorkloadSection read_section(const JsonValue& place) {
  place.allow_keys({"name", "replicas", "mode", "max_in_flight", "devices", "speeds"});
  WorkloadSection section;
  section.name = place.at("name").text();
  if (section.name.empty()) place.at("name").fail("a section needs a name");
  section.replicas = place.at("replicas").whole_number(1, most_lanes);
  section.has_backward = place.at("mode").choice<bool>({{"forward_only", false}, {"forward_backward", true}});
  if (const JsonValue limit = place.at("max_in_flight")) section.max_in_flight = limit.whole_number(1, most_places);
  if (const JsonValue devices = place.at("devices")) {
    for (const JsonValue& device : devices.items()) {
      section.devices.push_back(read_lane_devices(device));
    }
    if (static_cast<std::int64_t>(section.devices.size()) != section.replicas) {
      devices.fail("one device, or list of devices, per replica: " + std::to_string(section.devices.size()) + " for " +
                   std::to_string(section.replicas) + " replicas");
    }
  }
  if (const JsonValue speeds = place.at("speeds")) read_speeds(speeds, section);
  return section;
}

std::vector<WorkloadSection> read_sections(const JsonValue& place) {
  std::vector<WorkloadSection> sections;
  for (const JsonValue& item : place.items()) {
    WorkloadSection section = read_section(item);
    for (std::size_t before = 0; before < sections.size(); ++before) {
      if (sections[before].name == section.name) {
        item.at("name").fail("sections[" + std::to_string(before) + "] has the name \"" + printable(section.name) +
                             "\" already");
      }
    }
    sections.push_back(std::move(section));
  }
  if (sections.empty()) place.fail("the list is empty; a workload needs a section");
  return sections;
}

std::vector<WorkloadEdge> read_edges(const JsonValue& place, const std::vector<WorkloadSection>& sections) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
  std::vector<WorkloadEdge> edges;
  for (const JsonValue& item : place.items()) {
    item.allow_keys({"from", "to", "slots", "transfer_ms"});
    WorkloadEdge edge;
    const auto end = [&](std::string_view key) {
      const JsonValue name = item.at(key);
      return section_named(name.text(), sections, name, "no section is called \"" + printable(name.text()) + "\"");
    };
    edge.from = end("from");
    edge.to = end("to");
    if (edge.from == edge.to) item.fail("an edge from " + printable(sections[edge.from].name) + " to itself");
    if (const JsonValue slots = item.at("slots")) edge.slots = slots.whole_number(1, most_places);
    if (const JsonValue transfer = item.at("transfer_ms")) edge.transfer_ms = milliseconds(transfer);
    const auto [before, fresh] = known.emplace(std::pair(edge.from, edge.to), edges.size());
    if (!fresh) item.fail("joins the same sections as edges[" + std::to_string(before->second) + "]");
    edges.push_back(edge);
  }
  return edges;
}

/// Returns "llm -> vision -> llm", along sections that cannot be ordered.
std::string cycle_among(const DraftGraph& graph, const std::vector<bool>& ordered) {
  const auto before = [&](std::size_t section) {
    const auto edge = std::find_if(graph.edges.begin(), graph.edges.end(),
                                   [&](const auto& e) { return e.to == section && !ordered[e.from]; });
    return edge->from;  // the edge exists, otherwise the section would be ordered
  };
  std::size_t at = static_cast<std::size_t>(std::find(ordered.begin(), ordered.end(), false) - ordered.begin());
  for (std::size_t step = 0; step < graph.sections.size(); ++step) at = before(at);  // now on the cycle
  std::string text = printable(graph.sections[at].name);
  std::size_t next = at;
  do {
    next = before(next);
    text = printable(graph.sections[next].name) + " -> " + text;
  } while (next != at);
  return printable(text, longest_cycle);
}

/// Puts every edge's producer before its consumer, and otherwise keeps the order of the file.
DraftGraph in_topological_order(DraftGraph graph, const JsonValue& place) {
  const std::size_t count = graph.sections.size();
  std::vector<bool> ordered(count, false);
  std::vector<std::size_t> rank(count, 0);
  DraftGraph sorted;
  while (sorted.sections.size() < count) {
    std::size_t next = 0;
    const auto blocked = [&](std::size_t section) {
      return std::any_of(graph.edges.begin(), graph.edges.end(),
                         [&](const auto& edge) { return edge.to == section && !ordered[edge.from]; });
    };
    while (next < count && (ordered[next] || blocked(next))) ++next;
    if (next == count) place.fail("the edges form a cycle: " + cycle_among(graph, ordered));
    ordered[next] = true;
    rank[next] = sorted.sections.size();
    sorted.sections.push_back(std::move(graph.sections[next]));
  }
  for (WorkloadEdge edge : graph.edges) {
    edge.from = rank[edge.from];
    edge.to = rank[edge.to];
    sorted.edges.push_back(edge);
  }
  return sorted;
}

class SampleReader {
 public:
  explicit SampleReader(Workload& workload) : workload_(workload) {}

  void read(const JsonValue& place, std::size_t index) {
    place.allow_keys({"id", "forward_ms", "backward_ms"});
    const std::int64_t id = place.at("id").whole_number(INT64_MIN, INT64_MAX);
    const auto [known, fresh] = ids_.emplace(id, index);
    if (!fresh) {
      place.at("id").fail("samples[" + std::to_string(known->second) + "] has the id " + std::to_string(id) +
                          " already");
    }
    const JsonValue forward = place.at("forward_ms");
    const Times forward_ms = read_times(forward);
    if (std::none_of(forward_ms.begin(), forward_ms.end(), [](const auto& time) { return time.has_value(); })) {
      forward.fail("a sample needs a time in one section at least");
    }
    const JsonValue backward = place.at("backward_ms");
    const Times backward_ms = backward ? read_times(backward) : Times(workload_.sections.size());
    check_backward(place, forward_ms, backward_ms);
    check_paths(forward, forward_ms);
    add_tasks(id, forward_ms, backward_ms);
  }

 private:
  using Times = std::vector<std::optional<double>>;  // by section

  Times read_times(const JsonValue& place) const {
    Times times(workload_.sections.size());
    for (const auto& [name, time] : place.members()) {
      times[section_named(name, workload_.sections, time, "no section has this name")] = milliseconds(time);
    }
    return times;
  }

  void check_backward(const JsonValue& place, const Times& forward_ms, const Times& backward_ms) const {
    for (std::size_t at = 0; at < workload_.sections.size(); ++at) {
      const std::string name = printable(workload_.sections[at].name);
      if (backward_ms[at] && !workload_.sections[at].has_backward) {
        place.at("backward_ms").fail(name + " is forward_only and does not run backward passes");
      }
      if (backward_ms[at] && !forward_ms[at]) {
        place.at("backward_ms").fail("a time for " + name + ", which has none in forward_ms");
      }
      if (forward_ms[at] && workload_.sections[at].has_backward && !backward_ms[at]) {
        place.fail("backward_ms has no time for " + name + ", which is forward_backward");
      }
    }
  }

  /// Returns the sections that can be reached from `from` over sections that the sample activates (or does not).
  std::vector<bool> reached(std::size_t from, const Times& forward_ms, bool activated) const {
    std::vector<bool> open(workload_.sections.size(), false);
    std::vector<bool> found(workload_.sections.size(), false);
    open[from] = true;
    for (std::size_t at = from; at < open.size(); ++at) {
      if (!open[at]) continue;
      for (const WorkloadEdge& edge : workload_.edges) {
        if (edge.from != at) continue;
        found[edge.to] = true;
        if (forward_ms[edge.to].has_value() == activated) open[edge.to] = true;
      }
    }
    return found;
  }

  /// Throws if a sample skips a section: an output reaches later sections only through sections in between that run.
  void check_paths(const JsonValue& forward, const Times& forward_ms) const {
    for (std::size_t from = 0; from < forward_ms.size(); ++from) {
      if (!forward_ms[from]) continue;
      const std::vector<bool> through_idle = reached(from, forward_ms, false);
      const std::vector<bool> through_active = reached(from, forward_ms, true);
      for (std::size_t to = from + 1; to < forward_ms.size(); ++to) {
        if (!forward_ms[to] || !through_idle[to] || through_active[to]) continue;
        for (std::size_t between = from + 1; between < to; ++between) {
          if (forward_ms[between] || !through_idle[between] || !reached(between, forward_ms, false)[to]) continue;
          forward.fail("the sample runs " + printable(workload_.sections[from].name) + " and " +
                       printable(workload_.sections[to].name) + ", but has no time for " +
                       printable(workload_.sections[between].name) + " between them");
        }
      }
    }
  }

  void add_tasks(std::int64_t id, const Times& forward_ms, const Times& backward_ms) {
    std::vector<std::size_t> task_in(workload_.sections.size());
    for (std::size_t section = 0; section < forward_ms.size(); ++section) {
      if (!forward_ms[section]) continue;
      WorkloadTask task;
      task.section = section;
      task.sample = id;
      task.forward_ms = *forward_ms[section];
      task.backward_ms = backward_ms[section].value_or(0.0);
      for (std::size_t edge = 0; edge < workload_.edges.size(); ++edge) {
        const WorkloadEdge& input = workload_.edges[edge];
        if (input.to == section && forward_ms[input.from]) task.inputs.push_back({edge, task_in[input.from]});
      }
      task_in[section] = workload_.tasks.size();
      workload_.tasks.push_back(std::move(task));
    }
  }

  Workload& workload_;
  std::map<std::int64_t, std::size_t> ids_;
};

}  // namespace

Workload parse_workload(std::string_view text, const std::string& file_name) {
  const json document = parse_json(text, file_name).value_or_throw();
  const JsonValue root(document, file_name);
  root.allow_keys({"sections", "edges", "samples"});
  DraftGraph graph;
  graph.sections = read_sections(root.at("sections"));
  const JsonValue edges = root.at("edges");
  if (edges) graph.edges = read_edges(edges, graph.sections);
  graph = in_topological_order(std::move(graph), edges ? edges : root);

  Workload workload;
  workload.sections = std::move(graph.sections);
  workload.edges = std::move(graph.edges);
  SampleReader reader(workload);
  const std::vector<JsonValue> samples = root.at("samples").items();
  if (samples.empty()) root.at("samples").fail("the list is empty; a workload needs a sample");
  for (std::size_t at = 0; at < samples.size(); ++at) reader.read(samples[at], at);
  return workload;
}

Workload load_workload(const std::filesystem::path& path) {
  return parse_workload(read_text(path, largest_workload).value_or_throw(), path.string());
}

std::string timeline_json(const Workload& workload, const Schedule& schedule) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const PlannedPass& pass : schedule.passes) {
    const WorkloadTask& task = workload.tasks[pass.task];
    events.push_back({{"sample", task.sample},
                      {"section", workload.sections[task.section].name},
                      {"replica", pass.replica},
                      {"pass", pass.backward ? "backward" : "forward"},
                      {"start_ms", pass.start_ms},
                      {"end_ms", pass.end_ms}});
  }
  return events.dump();
}

}  // namespace maestro
