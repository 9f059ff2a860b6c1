// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/schedule/workload_generator.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

std::vector<WorkloadKind> workload_kinds() {
  return {WorkloadKind::vision_language, WorkloadKind::distillation, WorkloadKind::audio_vision,
          WorkloadKind::generation};
}

std::string_view name_of(WorkloadKind kind) {
  switch (kind) {
    case WorkloadKind::vision_language:
      return "vision_language";
    case WorkloadKind::distillation:
      return "distillation";
    case WorkloadKind::audio_vision:
      return "audio_vision";
    case WorkloadKind::generation:
      return "generation";
  }
  return "unknown";
}

std::string_view name_of(WorkloadLayout layout) {
  switch (layout) {
    case WorkloadLayout::sized:
      return "sized";
    case WorkloadLayout::tight:
      return "tight";
    case WorkloadLayout::heavy:
      return "heavy";
  }
  return "unknown";
}

namespace {

constexpr std::int64_t most_in_flight = 8;

/// Values around 1 with a heavy tail, cut at 30.
class HeavyTail {
 public:
  HeavyTail(Random& random, double least_shape)
      : pareto_(random.below(2) == 0), shape_(least_shape + 0.5 * random.uniform()) {}
  double draw(Random& random) const {
    const double value = pareto_ ? std::pow(1.0 - random.uniform(), -shape_ / 1.5) : std::exp(shape_ * random.normal());
    return std::clamp(value, 0.1, 30.0);
  }

 private:
  bool pareto_;
  double shape_;  // lognormal: sigma; Pareto: 1.5 / alpha
};

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}

/// A sample's forward time in each section; negative: the sample does not activate the section.
using SampleTimes = std::vector<double>;

struct Draft {
  Workload workload;
  std::vector<SampleTimes> samples;
  std::size_t critical = 0;
};

std::size_t add_section(Draft& draft, std::string name, bool trained, std::int64_t replicas) {
  WorkloadSection section;
  section.name = std::move(name);
  section.has_backward = trained;
  section.replicas = replicas;
  draft.workload.sections.push_back(std::move(section));
  return draft.workload.sections.size() - 1;
}

void add_edge(Draft& draft, std::size_t from, std::size_t to) {
  WorkloadEdge edge;
  edge.from = from;
  edge.to = to;
  draft.workload.edges.push_back(edge);
}

struct LaneRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
  std::int64_t draw(Random& random) const { return between(random, least, most); }
};

struct Lanes {
  LaneRange auxiliary;
  LaneRange critical;
};

void draft_encoders(Draft& draft, WorkloadKind kind, const Lanes& lanes, Random& random) {
  const bool trained = random.below(5) < 3;
  add_section(draft, "vision", trained, lanes.auxiliary.draw(random));
  if (kind == WorkloadKind::audio_vision) {
    add_section(draft, "audio", random.below(2) == 0, lanes.auxiliary.draw(random));
  }
  draft.critical = add_section(draft, "llm", true, lanes.critical.draw(random));
  for (std::size_t encoder = 0; encoder < draft.critical; ++encoder) add_edge(draft, encoder, draft.critical);
  if (kind == WorkloadKind::generation) {
    add_section(draft, "generator", random.below(3) > 0, lanes.auxiliary.draw(random));
    add_edge(draft, draft.critical, draft.critical + 1);
  }
}

void draft_distillation(Draft& draft, std::int64_t students, const Lanes& lanes, Random& random) {
  add_section(draft, "teacher", false, lanes.auxiliary.draw(random));
  draft.critical = add_section(draft, "student", true, lanes.critical.draw(random));
  add_edge(draft, 0, 1);
  for (std::int64_t more = 2; more <= students; ++more) {
    const std::size_t student =
        add_section(draft, "student" + std::to_string(more), true, lanes.auxiliary.draw(random));
    add_edge(draft, 0, student);
  }
}

void draw_samples(Draft& draft, WorkloadKind kind, std::int64_t count, double least_shape, Random& random) {
  const HeavyTail text(random, least_shape);
  const HeavyTail picture(random, least_shape);
  const double pictures_share = 0.1 + 0.8 * random.uniform();
  const double sound_share = 0.1 + 0.5 * random.uniform();
  const double generated_share = 0.1 + 0.4 * random.uniform();
  const double picture_weight = 0.1 + 0.4 * random.uniform();  // LLM work per image, relative to a short text
  for (std::int64_t sample = 0; sample < count; ++sample) {
    SampleTimes times(draft.workload.sections.size(), -1.0);
    const double length = text.draw(random);
    if (kind == WorkloadKind::distillation) {
      std::fill(times.begin(), times.end(), length);
      draft.samples.push_back(std::move(times));
      continue;
    }
    double pictures = 0;
    if (random.uniform() < pictures_share) {
      const std::int64_t images = between(random, 1, random.below(3) == 0 ? 8 : 2);
      for (std::int64_t image = 0; image < images; ++image) pictures += picture.draw(random);
      times[0] = pictures;
    }
    if (kind == WorkloadKind::audio_vision && random.uniform() < sound_share) times[1] = text.draw(random);
    times[draft.critical] = length + picture_weight * pictures;
    if (kind == WorkloadKind::generation && random.uniform() < generated_share) times.back() = picture.draw(random);
    draft.samples.push_back(std::move(times));
  }
}

/// Scales a section's times so that its lanes have `share` of the critical section's work per lane.
void balance(Draft& draft, std::size_t section, double share) {
  const auto load = [&](std::size_t of) {
    double sum = 0;
    for (const SampleTimes& times : draft.samples) sum += std::max(times[of], 0.0);
    return sum * (draft.workload.sections[of].has_backward ? 3 : 1) /
           static_cast<double>(draft.workload.sections[of].replicas);
  };
  const double now = load(section);
  if (now <= 0) return;
  const double scale = share * load(draft.critical) / now;
  for (SampleTimes& times : draft.samples) {
    if (times[section] >= 0) times[section] *= scale;
  }
}

/// Adds a task per sample and section. Times are positive multiples of `unit_ms`; backward passes take twice as long.
void add_tasks(Draft& draft, double unit_ms) {
  Workload& workload = draft.workload;
  const auto whole = [&](double time) { return std::max(1.0, std::round(time / unit_ms)) * unit_ms; };
  std::vector<std::size_t> made(workload.sections.size());
  for (std::size_t sample = 0; sample < draft.samples.size(); ++sample) {
    const SampleTimes& times = draft.samples[sample];
    for (std::size_t section = 0; section < times.size(); ++section) {
      if (times[section] < 0) continue;
      WorkloadTask task;
      task.section = section;
      task.sample = static_cast<std::int64_t>(sample);
      task.forward_ms = whole(times[section]);
      task.backward_ms = workload.sections[section].has_backward ? 2 * task.forward_ms : 0;
      for (std::size_t edge = 0; edge < workload.edges.size(); ++edge) {
        if (workload.edges[edge].to != section || times[workload.edges[edge].from] < 0) continue;
        task.inputs.push_back({edge, made[workload.edges[edge].from]});
      }
      made[section] = workload.tasks.size();
      workload.tasks.push_back(std::move(task));
    }
  }
}

/// Widens limits by Little's law: places = the time that tasks are in flight / the shortest time of the step. Returns
/// false if a section needs more than most_in_flight.
bool widen_in_flight_limits(Workload& workload) {
  const std::vector<double> away = turnarounds(workload, consumers_of(workload));
  std::vector<double> busy(workload.sections.size(), 0.0);
  std::vector<double> held(workload.sections.size(), 0.0);
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    const WorkloadTask& times = workload.tasks[task];
    const double lanes = static_cast<double>(workload.sections[times.section].replicas);
    busy[times.section] += (times.forward_ms + times.backward_ms) / lanes;
    held[times.section] += (away[task] + times.backward_ms) / lanes;
  }
  const double step_ms = *std::max_element(busy.begin(), busy.end());
  for (std::size_t section = 0; section < workload.sections.size(); ++section) {
    if (!workload.sections[section].has_backward) continue;
    const auto wanted = static_cast<std::int64_t>(std::ceil(1.5 * held[section] / step_ms));
    if (wanted > most_in_flight) return false;
    workload.sections[section].max_in_flight = std::max(wanted, workload.sections[section].max_in_flight);
  }
  return true;
}

std::string name_of(WorkloadKind kind, std::uint64_t seed, const Draft& draft) {
  std::string name =
      std::string(name_of(kind)) + "-" + std::to_string(seed) + "-n" + std::to_string(draft.samples.size());
  for (const WorkloadSection& section : draft.workload.sections) {
    name += "-" + section.name + "x" + std::to_string(section.replicas) + (section.has_backward ? "" : "f");
    if (section.max_in_flight != no_limit) name += "k" + std::to_string(section.max_in_flight);
  }
  return name;
}

}  // namespace

namespace {

/// The ranges that a layout draws from.
struct Ranges {
  Lanes lanes;
  double least_shape = 0.5;  ///< shape of the length distribution
  double least_share = 0.3;  ///< share of the critical section's work per lane
  double share_range = 0.7;
  std::int64_t most_in_flight = maestro::most_in_flight;
};

Ranges ranges_of(WorkloadKind kind, WorkloadLayout layout) {
  switch (layout) {
    case WorkloadLayout::sized:
      return {.lanes = {{1, 8}, {1, 32}}, .share_range = 0.5};
    case WorkloadLayout::tight:
      return {.lanes = {{1, 8}, {1, 32}}};
    case WorkloadLayout::heavy:
      break;
  }
  const Lanes lanes = kind == WorkloadKind::distillation ? Lanes{{4, 16}, {4, 16}} : Lanes{{4, 4}, {8, 8}};
  return {.lanes = lanes, .least_shape = 1.0, .least_share = 0.5, .share_range = 0.5, .most_in_flight = 3};
}

/// Draws a workload. Returns false if `sized` is wanted and its in-flight limits would be too large.
bool draw_workload(WorkloadKind kind, WorkloadLayout layout, Random& random, Draft& draft) {
  const Ranges ranges = ranges_of(kind, layout);
  const Lanes& lanes = ranges.lanes;
  if (kind == WorkloadKind::distillation) {
    draft_distillation(draft, between(random, 1, 3), lanes, random);
  } else {
    draft_encoders(draft, kind, lanes, random);
  }
  draw_samples(draft, kind, std::int64_t{64} << random.below(5), ranges.least_shape, random);
  for (SampleTimes& times : draft.samples) {
    for (double& time : times) time = time < 0 ? time : 5.0 * time;
  }
  for (std::size_t section = 0; section < draft.workload.sections.size(); ++section) {
    if (section != draft.critical) balance(draft, section, ranges.least_share + ranges.share_range * random.uniform());
    if (draft.workload.sections[section].has_backward) {
      draft.workload.sections[section].max_in_flight = between(random, 1, ranges.most_in_flight);
    }
  }
  for (WorkloadEdge& edge : draft.workload.edges) {
    edge.slots = between(random, 1, 4);
    edge.transfer_ms = 0.1 * static_cast<double>(random.below(6));
  }
  add_tasks(draft, 0.001);
  return layout != WorkloadLayout::sized || widen_in_flight_limits(draft.workload);
}

}  // namespace

GeneratedWorkload generate_workload(WorkloadKind kind, std::uint64_t seed, WorkloadLayout layout) {
  Random random(seed, static_cast<std::uint64_t>(kind));
  Draft draft;
  while (!draw_workload(kind, layout, random, draft)) draft = {};
  return {name_of(kind, seed, draft), std::move(draft.workload)};
}

GeneratedWorkload generate_tiny_workload(WorkloadKind kind, std::uint64_t seed, std::int64_t samples) {
  Random random(seed, 1000 + static_cast<std::uint64_t>(kind));
  Draft draft;
  const Lanes lanes{{1, 2}, {1, 2}};
  if (kind == WorkloadKind::distillation) {
    draft_distillation(draft, between(random, 1, 2), lanes, random);
  } else {
    draft_encoders(draft, kind, lanes, random);
  }
  draw_samples(draft, kind, between(random, 1, samples), 0.5, random);
  for (SampleTimes& times : draft.samples) {
    for (double& time : times) time = time < 0 ? time : std::min(time, 4.0) * 2;
  }
  for (WorkloadSection& section : draft.workload.sections) {
    if (section.has_backward) section.max_in_flight = between(random, 0, 3);
  }
  for (WorkloadEdge& edge : draft.workload.edges) {
    edge.slots = between(random, 0, 2);
    edge.transfer_ms = static_cast<double>(random.below(3));
  }
  if (random.below(4) == 0) {  // the first two sections on the same devices
    for (std::size_t section = 0; section < 2; ++section) {
      for (int replica = 0; replica < draft.workload.sections[section].replicas; ++replica) {
        draft.workload.sections[section].devices.push_back({replica});
      }
    }
  }
  add_tasks(draft, 1.0);
  return {name_of(kind, seed, draft), std::move(draft.workload)};
}

}  // namespace maestro
