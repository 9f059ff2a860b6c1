// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/schedule/exhaustive.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

constexpr double slack = 1e-9;

/// start(after) >= start(before) + gap; the gap may be negative.
struct Precedence {
  std::size_t before = 0;
  std::size_t after = 0;
  double gap = 0;
};

/// A use of a slot or an in-flight place, from the start or end of a pass to the start or end of another.
struct Hold {
  std::size_t begin = 0;  ///< pass
  bool begin_at_end = false;
  std::size_t end = 0;  ///< pass
  bool end_at_end = false;
};

/// Holds; at most `limit` may overlap.
struct Ring {
  std::int64_t limit = 0;
  std::vector<Hold> holds;
};

/// Returns the forward pass of task t, which is pass 2 t; pass 2 t + 1 is its backward pass.
std::size_t forward_of(std::size_t task) {
  return 2 * task;
}
std::size_t backward_of(std::size_t task) {
  return 2 * task + 1;
}

class Search {
 public:
  Search(const Workload& workload, std::int64_t max_nodes)
      : workload_(workload), max_nodes_(max_nodes), lane_of_(workload.tasks.size(), 0) {
    durations_.assign(2 * workload.tasks.size(), 0.0);
    exists_.assign(2 * workload.tasks.size(), false);
    for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
      exists_[forward_of(task)] = true;
      exists_[backward_of(task)] = workload.sections[workload.tasks[task].section].has_backward;
    }
    put_on_lanes();
    double slowest = 1;
    for (const WorkloadSection& section : workload.sections) {
      for (const double speed : section.speeds) slowest = std::min(slowest, speed);
    }
    for (const Precedence& order : orders_) best_ += order.gap / slowest;
    for (const double duration : durations_) best_ += duration / slowest;
  }

  ExhaustiveResult run() {
    assign_lanes(0);
    result_.proven = result_.nodes < max_nodes_;
    return std::move(result_);
  }

 private:
  bool trained(std::size_t task) const { return exists_[backward_of(task)]; }

  /// Sets the passes' durations by the speeds of their lanes.
  void put_on_lanes() {
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      const WorkloadTask& given = workload_.tasks[task];
      const double speed = workload_.sections[given.section].speed(lane_of_[task]);
      durations_[forward_of(task)] = given.forward_ms / speed;
      if (trained(task)) durations_[backward_of(task)] = given.backward_ms / speed;
    }
    orders_.clear();
    add_dependencies();
  }

  void add_dependencies() {
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      const std::size_t forward = forward_of(task);
      if (trained(task)) orders_.push_back({forward, backward_of(task), durations_[forward]});
      for (const TaskInput& input : workload_.tasks[task].inputs) {
        const double transfer = workload_.edges[input.edge].transfer_ms;
        const std::size_t producer = forward_of(input.task);
        orders_.push_back({producer, forward, durations_[producer] + transfer});
        if (!trained(input.task)) continue;
        const std::size_t waiting = backward_of(input.task);
        if (trained(task)) {
          orders_.push_back({backward_of(task), waiting, durations_[backward_of(task)] + transfer});
        } else {
          orders_.push_back({forward, waiting, durations_[forward]});
        }
      }
    }
  }

  /// Tries the lanes of a task: each used lane and the first unused lane, as a section's lanes are alike.
  void assign_lanes(std::size_t task) {
    if (task == lane_of_.size()) {
      put_on_lanes();
      collect_rings();
      std::vector<double> starts(durations_.size(), 0.0);
      branch(std::move(starts));
      return;
    }
    const std::size_t section = workload_.tasks[task].section;
    const WorkloadSection& lanes = workload_.sections[section];
    std::int64_t used = 0;
    for (std::size_t before = 0; before < task; ++before) {
      if (workload_.tasks[before].section == section) used = std::max(used, lane_of_[before] + 1);
    }
    const bool alike = lanes.devices.empty() && lanes.speeds.empty();
    const std::int64_t count = alike ? std::min(lanes.replicas, used + 1) : lanes.replicas;
    std::vector<std::int64_t> choices(static_cast<std::size_t>(count));
    std::iota(choices.begin(), choices.end(), 0);
    const auto load_of = [&](std::int64_t lane) {
      double most = 0;
      for (const DeviceKey& device : devices_of(workload_, section, lane)) most = std::max(most, load_[device]);
      return most;
    };
    std::ranges::stable_sort(choices, {}, load_of);
    const WorkloadTask& given = workload_.tasks[task];
    for (const std::int64_t lane : choices) {
      const double body = (given.forward_ms + (trained(task) ? given.backward_ms : 0)) / lanes.speed(lane);
      if (result_.nodes >= max_nodes_ || load_of(lane) + body >= best_ - slack) continue;
      const std::map<DeviceKey, double> before = load_;
      for (const DeviceKey& device : devices_of(workload_, section, lane)) load_[device] += body;
      lane_of_[task] = lane;
      assign_lanes(task + 1);
      load_ = before;
    }
  }

  void collect_rings() {
    std::map<std::tuple<int, std::size_t, std::int64_t>, Ring> rings;
    std::map<DeviceKey, std::vector<std::size_t>> devices;
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      const std::size_t section = workload_.tasks[task].section;
      const WorkloadSection& lanes = workload_.sections[section];
      const std::int64_t lane = lane_of_[task];
      for (const TaskInput& input : workload_.tasks[task].inputs) {
        Ring& ring = rings[{0, input.edge, lane}];
        ring.limit = workload_.edges[input.edge].slots;
        ring.holds.push_back({forward_of(input.task), true, forward_of(task), false});
      }
      if (trained(task)) {
        Ring& ring = rings[{1, section, lane}];
        ring.limit = lanes.max_in_flight;
        ring.holds.push_back({forward_of(task), false, backward_of(task), true});
      }
      for (const DeviceKey& device : devices_of(workload_, section, lane)) {
        devices[device].push_back(forward_of(task));
        if (trained(task)) devices[device].push_back(backward_of(task));
      }
    }
    rings_.clear();
    devices_.clear();
    for (auto& [key, ring] : rings) {
      if (ring.limit != no_limit) rings_.push_back(std::move(ring));
    }
    for (auto& [key, passes] : devices) devices_.push_back(std::move(passes));
  }

  double event(const std::vector<double>& starts, std::size_t pass, bool at_end) const {
    return starts[pass] + (at_end ? durations_[pass] : 0.0);
  }

  /// Computes the earliest starts under all orders. Returns false if the end is not before the best end, also for a
  /// cycle of positive length.
  bool settle(std::vector<double>& starts) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Precedence& order : orders_) {
        const double start = starts[order.before] + order.gap;
        if (start <= starts[order.after] + slack) continue;
        if (start + durations_[order.after] >= best_ - slack) return false;
        starts[order.after] = start;
        changed = true;
      }
    }
    return true;
  }

  /// Returns the longest path from each pass's start to the end of the schedule.
  std::vector<double> tails() const {
    std::vector<double> tails = durations_;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto order = orders_.rbegin(); order != orders_.rend(); ++order) {
        const double tail = tails[order->after] + order->gap;
        if (tail <= tails[order->before] + slack) continue;
        tails[order->before] = tail;
        changed = true;
      }
    }
    return tails;
  }

  /// Adds the orders that every schedule shorter than the best must obey. Returns false if no schedule is shorter.
  bool tighten(std::vector<double>& starts) {
    for (bool changed = true; changed;) {
      changed = false;
      const std::vector<double> rest = tails();
      for (const auto& passes : devices_) {
        if (!fits(passes, starts, rest)) return false;
        for (const std::size_t a : passes) {
          for (const std::size_t b : passes) {
            if (a == b || starts[a] + durations_[a] + rest[b] < best_ - slack) continue;
            if (starts[a] >= starts[b] + durations_[b] - slack && rest[b] >= durations_[b] + rest[a] - slack) continue;
            orders_.push_back({b, a, durations_[b]});
            changed = true;
          }
        }
      }
      if (!settle(starts)) return false;
    }
    return true;
  }

  /// Returns whether the device's work fits between its earliest start and its shortest tail.
  bool fits(const std::vector<std::size_t>& passes, const std::vector<double>& starts,
            const std::vector<double>& rest) const {
    double head = std::numeric_limits<double>::infinity();
    double tail = head;
    double body = 0;
    for (const std::size_t pass : passes) {
      head = std::min(head, starts[pass]);
      tail = std::min(tail, rest[pass] - durations_[pass]);
      body += durations_[pass];
      if (starts[pass] + rest[pass] >= best_ - slack) return false;
    }
    return head + body + tail < best_ - slack;
  }

  void branch(std::vector<double> starts) {
    if (++result_.nodes >= max_nodes_) return;
    const std::size_t known = orders_.size();
    if (settle(starts) && tighten(starts)) {
      const std::vector<Precedence> choices = next_choices(starts);
      if (choices.empty()) record(starts);
      for (const Precedence& choice : choices) {
        orders_.push_back(choice);
        branch(starts);
        orders_.pop_back();
      }
    }
    orders_.resize(known);
  }

  /// Returns the alternative orders for the first collision; none if nothing collides.
  std::vector<Precedence> next_choices(const std::vector<double>& starts) const {
    double earliest = std::numeric_limits<double>::infinity();
    std::vector<Precedence> choices;
    for (const auto& passes : devices_) {
      std::vector<std::size_t> order = passes;
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(starts[a], starts[a] + durations_[a]) < std::pair(starts[b], starts[b] + durations_[b]);
      });
      std::size_t last = order[0];
      for (std::size_t at = 1; at < order.size(); ++at) {
        const std::size_t pass = order[at];
        if (starts[pass] < starts[last] + durations_[last] - slack) {
          if (starts[pass] >= earliest) break;
          earliest = starts[pass];
          choices = {{last, pass, durations_[last]}, {pass, last, durations_[pass]}};
          break;
        }
        if (starts[pass] + durations_[pass] > starts[last] + durations_[last]) last = pass;
      }
    }
    for (const Ring& ring : rings_) {
      if (auto found = collision(ring, starts, earliest)) choices = std::move(*found);
    }
    return choices;
  }

  /// Returns the orders that resolve a ring's first collision before `earliest`: one hold ends before another.
  std::optional<std::vector<Precedence>> collision(const Ring& ring, const std::vector<double>& starts,
                                                   double& earliest) const {
    for (const Hold& late : ring.holds) {
      const double time = event(starts, late.begin, late.begin_at_end);
      if (time >= earliest) continue;
      std::vector<const Hold*> held;
      for (const Hold& hold : ring.holds) {
        const double end = event(starts, hold.end, hold.end_at_end);
        if (event(starts, hold.begin, hold.begin_at_end) <= time + slack && end > time + slack) held.push_back(&hold);
      }
      if (static_cast<std::int64_t>(held.size()) <= ring.limit) continue;
      held.resize(static_cast<std::size_t>(ring.limit) + 1);
      earliest = time;
      std::vector<Precedence> choices;
      for (const Hold* first : held) {
        for (const Hold* second : held) {
          const double gap = (first->end_at_end ? durations_[first->end] : 0.0) -
                             (second->begin_at_end ? durations_[second->begin] : 0.0);
          choices.push_back({first->end, second->begin, gap});
        }
      }
      return choices;
    }
    return std::nullopt;
  }

  void record(const std::vector<double>& starts) {
    Schedule schedule;
    for (std::size_t pass = 0; pass < starts.size(); ++pass) {
      if (!exists_[pass]) continue;
      PlannedPass planned;
      planned.task = pass / 2;
      planned.backward = pass % 2 == 1;
      planned.replica = lane_of_[pass / 2];
      planned.start_ms = starts[pass];
      planned.end_ms = starts[pass] + durations_[pass];
      schedule.makespan_ms = std::max(schedule.makespan_ms, planned.end_ms);
      schedule.passes.push_back(planned);
    }
    if (schedule.makespan_ms >= best_) return;
    std::stable_sort(schedule.passes.begin(), schedule.passes.end(), [](const auto& a, const auto& b) {
      return std::tie(a.start_ms, a.end_ms) < std::tie(b.start_ms, b.end_ms);
    });
    best_ = schedule.makespan_ms;
    result_.schedule = std::move(schedule);
  }

  const Workload& workload_;
  const std::int64_t max_nodes_;
  std::vector<std::int64_t> lane_of_;
  std::map<DeviceKey, double> load_;  // work of the tasks that have a lane
  std::vector<double> durations_;     // by pass
  std::vector<bool> exists_;          // by pass
  std::vector<Precedence> orders_;
  std::vector<Ring> rings_;
  std::vector<std::vector<std::size_t>> devices_;  // each device's passes
  double best_ = 1;                                // initially more than sequential execution
  ExhaustiveResult result_;
};

}  // namespace

ExhaustiveResult shortest_schedule(const Workload& workload, std::int64_t max_nodes) {
  return Search(workload, max_nodes).run();
}

}  // namespace maestro
