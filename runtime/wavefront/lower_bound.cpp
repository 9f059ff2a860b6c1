// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/lower_bound.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/wavefront/parallel_bound.hpp"
#include "runtime/wavefront/stage_bound.hpp"
#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

/// Neighbours of a task that a walk follows.
enum class Direction {
  inputs,     ///< forward passes that must have ended
  gradients,  ///< backward passes that follow
  outputs,    ///< all passes that follow a forward pass
};

/// Returns a number of devices such that every lane uses at least one of them: lanes that use the same device never run
/// at once, so at most that many lanes run at once.
std::size_t covering_devices(const std::vector<const std::vector<int>*>& lanes) {
  std::map<int, std::vector<std::size_t>> lanes_on;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const int device : *lanes[lane]) lanes_on[device].push_back(lane);
  }
  std::vector<const std::vector<std::size_t>*> most_first;
  for (const auto& [device, users] : lanes_on) most_first.push_back(&users);
  std::ranges::stable_sort(most_first, std::greater<>(), [](const auto* users) { return users->size(); });
  std::vector<char> covered(lanes.size());
  std::size_t count = 0;
  for (const auto* users : most_first) {
    if (std::ranges::all_of(*users, [&](std::size_t lane) { return covered[lane] != 0; })) continue;
    for (const std::size_t lane : *users) covered[lane] = 1;
    ++count;
  }
  return count;
}

/// Machine time of a section and bounds on the times around it; `free_body` is work that no neighbour constrains.
struct StageProblem {
  StagedWork staged;
  double free_body = 0;
  std::vector<double> free_heads;  ///< heads of tasks without staged work
  /// Sum of body times (start - start of its task's first pass), and of body times start for free tasks.
  double known_starts = 0;
  double after = 0;  ///< shortest time from the section's last pass to the end
};

class BoundSearch {
 public:
  explicit BoundSearch(const Workload& workload)
      : workload_(workload),
        consumers_(consumers_of(workload)),
        paths_(pass_paths(workload, consumers_)),
        turnarounds_(turnarounds(workload, consumers_)),
        tasks_of_(workload.sections.size()) {
    for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
      tasks_of_[workload.tasks[task].section].push_back(task);
    }
    for (const WorkloadSection& section : workload.sections) {
      std::vector<const std::vector<int>*> lanes;
      for (const std::vector<int>& devices : section.devices) lanes.push_back(&devices);
      machines_.push_back(lanes.empty() ? static_cast<std::size_t>(section.replicas) : covering_devices(lanes));
    }
  }

  double run() {
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      raise(paths_[task].forward_head + workload_.tasks[task].forward_ms + paths_[task].forward_tail);
    }
    for (std::size_t section = 0; section < workload_.sections.size(); ++section) {
      if (!tasks_of_[section].empty()) bound_section(section);
    }
    bound_shared_devices();
    return bound_;
  }

 private:
  void raise(double bound) { bound_ = std::max(bound_, bound); }

  const WorkloadSection& section_of(std::size_t task) const {
    return workload_.sections[workload_.tasks[task].section];
  }
  /// Returns the time of both passes: the backward time is 0 if there is none.
  double body_of(std::size_t task) const { return workload_.tasks[task].forward_ms + backward_body(task); }
  double backward_body(std::size_t task) const {
    return section_of(task).has_backward ? workload_.tasks[task].backward_ms : 0;
  }
  double last_tail(std::size_t task) const {
    return section_of(task).has_backward ? paths_[task].backward_tail : paths_[task].forward_tail;
  }
  /// Returns an upper bound on the lanes that can run a pass at the same time.
  std::size_t machines_of(std::size_t section) const { return machines_[section]; }

  void bound_section(std::size_t section) {
    const std::vector<std::size_t>& tasks = tasks_of_[section];
    const std::size_t machines = machines_of(section);
    std::vector<StageProblem> fronts;
    std::vector<StageProblem> backs;
    for (std::size_t other = 0; other < workload_.sections.size(); ++other) {
      if (other != section) add_neighbour(section, other, fronts, backs);
    }
    EdgeSums edges;
    for (const StageProblem& front : fronts) raise_sums(edges.before, front, machines);
    for (const StageProblem& back : backs) raise_sums(edges.after, back, machines);

    std::vector<BoundedJob> whole;
    for (const std::size_t task : tasks) whole.push_back({paths_[task].forward_head, body_of(task), last_tail(task)});
    raise(parallel_bound(whole, machines, edges));
    if (machines == 1) raise(preemptive_schrage(passes_of(tasks)));
    if (!workload_.sections[section].speeds.empty()) raise(preemptive_schrage(passes_of(tasks, rate_of(section))));
    bound_in_flight(section, edges);
    for (const StageProblem& front : fronts) bound_stage(section, front);
    for (const StageProblem& back : backs) bound_stage(section, back);
    for (const StageProblem& front : fronts) {
      for (const StageProblem& back : backs) bound_both_ends(section, front, back);
    }
  }

  /// Returns the most work, relative to the fastest lane, that concurrent lanes do per unit of time: as many of the
  /// fastest lanes as there are machines. A machine with that speed, which divides its time, can do the work of any
  /// schedule in its time.
  double rate_of(std::size_t section) const {
    std::vector<double> speeds = workload_.sections[section].speeds;
    std::ranges::sort(speeds, std::greater<>());
    return std::accumulate(speeds.begin(), speeds.begin() + static_cast<std::ptrdiff_t>(machines_of(section)), 0.0);
  }

  /// Returns the passes on a machine with that speed; everything else is as on the fastest lanes.
  std::vector<BoundedJob> passes_of(std::span<const std::size_t> tasks, double rate = 1) const {
    std::vector<BoundedJob> passes;
    for (const std::size_t task : tasks) {
      const PassPaths& path = paths_[task];
      passes.push_back({path.forward_head, workload_.tasks[task].forward_ms / rate, path.forward_tail});
      if (section_of(task).has_backward) {
        passes.push_back({path.backward_head, workload_.tasks[task].backward_ms / rate, path.backward_tail});
      }
    }
    return passes;
  }

  /// Bounds by the in-flight limit: with limit K a lane is K machines, and each holds a task from its first pass to the
  /// end of its last.
  void bound_in_flight(std::size_t section, const EdgeSums& edges) {
    const WorkloadSection& lanes = workload_.sections[section];
    if (!lanes.has_backward || lanes.max_in_flight == no_limit) return;
    const std::size_t count = tasks_of_[section].size();
    if (static_cast<std::size_t>(lanes.max_in_flight) >= count) return;
    std::vector<BoundedJob> held;
    for (const std::size_t task : tasks_of_[section]) {
      const double held_ms = turnarounds_[task] + workload_.tasks[task].backward_ms;
      held.push_back({paths_[task].forward_head, held_ms, paths_[task].backward_tail});
    }
    // The sums are over lanes, so none reaches beyond the number of lanes.
    raise(parallel_bound(held, static_cast<std::size_t>(lanes.replicas * lanes.max_in_flight),
                         lanes.max_in_flight == 1 && lanes.devices.empty() ? edges : EdgeSums{}));
  }

  /// Returns the tasks of `other` that the task depends on (or that depend on it) by `direction`, each with the
  /// shortest time between them.
  std::vector<std::pair<std::size_t, double>> reached(std::size_t task, std::size_t other, Direction direction) const {
    std::map<std::size_t, double> open{{task, 0.0}};  // by task: topological
    std::vector<std::pair<std::size_t, double>> found;
    while (!open.empty()) {
      const auto at = direction == Direction::outputs ? open.begin() : std::prev(open.end());
      const auto [here, lag] = *at;
      open.erase(at);
      if (here != task && workload_.tasks[here].section == other) {
        found.emplace_back(here, lag);
        continue;
      }
      double through = lag;
      if (here != task) {
        through +=
            direction == Direction::gradients ? workload_.tasks[here].backward_ms : workload_.tasks[here].forward_ms;
      }
      const auto visit = [&](std::size_t edge, std::size_t next) {
        if (direction == Direction::gradients && !section_of(next).has_backward) return;
        double& known = open.try_emplace(next, 0.0).first->second;
        known = std::max(known, through + workload_.edges[edge].transfer_ms);
      };
      if (direction == Direction::outputs) {
        for (const TaskConsumer& consumer : consumers_[here]) visit(consumer.edge, consumer.task);
      } else {
        for (const TaskInput& input : workload_.tasks[here].inputs) visit(input.edge, input.task);
      }
    }
    return found;
  }

  /// Returns the time that a task of the neighbour takes on its lanes on that side.
  double other_body(std::size_t task, Direction direction) const {
    if (direction == Direction::outputs) return body_of(task);
    return direction == Direction::gradients ? workload_.tasks[task].backward_ms : workload_.tasks[task].forward_ms;
  }
  double other_head(std::size_t task, Direction direction) const {
    return direction == Direction::inputs ? paths_[task].forward_head : last_tail(task);
  }

  /// Returns the work of `section` that has to pass through `other` on that side.
  StageProblem stage_problem(std::size_t section, std::size_t other, Direction direction) const {
    const bool front = direction == Direction::inputs;
    std::map<std::size_t, std::size_t> shared;  // by task of the other section, how many tasks reach it
    std::vector<std::vector<std::pair<std::size_t, double>>> neighbours;
    for (const std::size_t task : tasks_of_[section]) {
      neighbours.push_back(reached(task, other, direction));
      for (const auto& [next, lag] : neighbours.back()) ++shared[next];
    }
    StageProblem problem;
    StagedWork& staged = problem.staged;
    staged.other_machines = machines_of(other);
    bool first = true;
    double after = -1;
    for (std::size_t at = 0; at < neighbours.size(); ++at) {
      const std::size_t task = tasks_of_[section][at];
      const PassPaths& path = paths_[task];
      const double own_after = front ? last_tail(task) : path.forward_head;
      after = after < 0 ? own_after : std::min(after, own_after);
      if (section_of(task).has_backward) {
        const WorkloadTask& times = workload_.tasks[task];
        problem.known_starts += front ? times.backward_ms * turnarounds_[task]
                                      : times.forward_ms * (turnarounds_[task] + times.backward_ms - times.forward_ms);
      }
      if (neighbours[at].empty()) {
        const double head = front ? path.forward_head : last_tail(task);
        problem.free_body += body_of(task);
        problem.free_heads.push_back(head);
        problem.known_starts += body_of(task) * head;
        continue;
      }
      StagedJob job{task, 0, body_of(task)};
      staged.separate = staged.separate && neighbours[at].size() == 1;
      for (const auto& [next, lag] : neighbours[at]) {
        job.other += other_body(next, direction) / static_cast<double>(shared[next]);
        staged.separate = staged.separate && shared[next] == 1 && direction != Direction::outputs;
        staged.lag = first ? lag : std::min(staged.lag, lag);
        staged.other_head =
            first ? other_head(next, direction) : std::min(staged.other_head, other_head(next, direction));
        first = false;
      }
      staged.jobs.push_back(job);
    }
    problem.after = std::max(after, 0.0);
    return problem;
  }

  void add_neighbour(std::size_t section, std::size_t other, std::vector<StageProblem>& fronts,
                     std::vector<StageProblem>& backs) const {
    const auto add = [&](std::vector<StageProblem>& side, Direction direction) {
      StageProblem problem = stage_problem(section, other, direction);
      if (!problem.staged.jobs.empty()) side.push_back(std::move(problem));
    };
    const bool trained = workload_.sections[section].has_backward;
    if (other < section) add(fronts, Direction::inputs);
    if (other < section && trained && workload_.sections[other].has_backward) add(backs, Direction::gradients);
    if (other > section && !trained) add(backs, Direction::outputs);
  }

  static void raise_sums(std::vector<double>& sums, const StageProblem& problem, std::size_t machines) {
    const std::vector<double> more = earliest_start_sums(problem.staged, problem.free_heads, machines);
    if (sums.size() < more.size()) sums.resize(more.size(), 0.0);
    for (std::size_t k = 0; k < more.size(); ++k) sums[k] = std::max(sums[k], more[k]);
  }

  void bound_stage(std::size_t section, const StageProblem& problem) {
    const std::size_t machines = machines_of(section);
    raise(johnson_bound(problem.staged, problem.free_body, machines) + problem.after);

    // If the jobs' weights are their lengths, the sum of length x time from start to C_max is at least W^2 / 2m + (sum
    // of squares) / 2 in any order; so W C_max is at least that plus the sum of length x start.
    double work = 0;
    double squares = 0;
    for (const BoundedJob& pass : passes_of(tasks_of_[section])) {
      work += pass.body;
      squares += pass.body * pass.body;
    }
    if (work <= 0) return;
    const double starts = weighted_start_sum(problem.staged) + problem.known_starts;
    raise(problem.after + (starts + squares / 2) / work + work / (2 * static_cast<double>(machines)));
  }

  /// Raises the bound by idle time at both ends: the passes that can run early differ from the passes that can run
  /// late.
  void bound_both_ends(std::size_t section, const StageProblem& front, const StageProblem& back) {
    const std::size_t machines = machines_of(section);
    std::set<std::size_t> in_front;
    std::set<std::size_t> in_both;
    for (const StagedJob& job : front.staged.jobs) in_front.insert(job.task);
    for (const StagedJob& job : back.staged.jobs) {
      if (in_front.count(job.task) > 0) in_both.insert(job.task);
    }
    double constrained = 0;
    for (const std::size_t task : in_both) constrained += body_of(task);
    const auto idle = [&](StagedWork staged, double latest) {
      std::erase_if(staged.jobs, [&](const StagedJob& job) { return in_both.count(job.task) == 0; });
      return staged.jobs.empty() ? IdleTime{} : idle_before(staged, machines, latest);
    };
    // The idle times add up if they cannot overlap: within the bound so far, which no schedule undercuts.
    const double known = bound_;
    for (const auto& [one, other] : {std::pair(&front, &back), std::pair(&back, &front)}) {
      const IdleTime first = idle(one->staged, known);
      const IdleTime second = idle(other->staged, known - first.until_ms);
      raise((constrained + first.machine_ms + second.machine_ms) / static_cast<double>(machines));
    }
  }

  /// Bounds sections whose lanes compete for shared devices: all their work against all their devices.
  void bound_shared_devices() {
    std::vector<std::size_t> group(workload_.sections.size());
    std::iota(group.begin(), group.end(), 0);
    std::map<int, std::size_t> owner;
    for (std::size_t section = 0; section < group.size(); ++section) {
      for (const std::vector<int>& lane : workload_.sections[section].devices) {
        for (const int device : lane) {
          const auto [known, fresh] = owner.emplace(device, group[section]);
          const std::size_t joined = group[known->second];
          const std::size_t here = group[section];
          if (!fresh) std::replace(group.begin(), group.end(), joined, here);
        }
      }
    }
    for (std::size_t leader = 0; leader < group.size(); ++leader) bound_group(group, leader);
  }

  void bound_group(const std::vector<std::size_t>& group, std::size_t leader) {
    std::set<int> devices;
    std::vector<const std::vector<int>*> lanes;
    std::vector<std::size_t> tasks;
    std::vector<BoundedJob> whole;
    std::vector<BoundedJob> per_device;  // a task occupies several devices at once: a job on each
    std::size_t members = 0;
    for (std::size_t section = 0; section < group.size(); ++section) {
      if (group[section] != leader) continue;
      ++members;
      std::size_t fewest = SIZE_MAX;
      for (const std::vector<int>& lane : workload_.sections[section].devices) {
        lanes.push_back(&lane);
        devices.insert(lane.begin(), lane.end());
        fewest = std::min(fewest, lane.size());
      }
      for (const std::size_t task : tasks_of_[section]) {
        tasks.push_back(task);
        whole.push_back({paths_[task].forward_head, body_of(task), last_tail(task)});
        if (!devices.empty()) per_device.insert(per_device.end(), fewest, whole.back());
      }
    }
    if (per_device.size() > whole.size()) raise(parallel_bound(per_device, devices.size()));
    if (members < 2) return;
    const std::size_t machines = covering_devices(lanes);
    raise(parallel_bound(whole, machines));
    if (machines == 1) raise(preemptive_schrage(passes_of(tasks)));
  }

  const Workload& workload_;
  const std::vector<std::vector<TaskConsumer>> consumers_;
  const std::vector<PassPaths> paths_;
  const std::vector<double> turnarounds_;
  std::vector<std::vector<std::size_t>> tasks_of_;
  std::vector<std::size_t> machines_;  // by section
  double bound_ = 0;
};

}  // namespace

double lower_bound_ms(const Workload& workload) {
  return BoundSearch(workload).run();
}

}  // namespace maestro
