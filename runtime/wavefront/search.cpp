// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace maestro {

namespace {

constexpr double switch_share = 0.06;  // share of all moves; more if orders are short
constexpr double last_share = 0.1;     // share of moves that advance the sample that ends last
constexpr double sample_share = 0.5;   // share of moves in a section that also move the sample in the others

/// Linked tasks of each sample, at most one per section.
class Samples {
 public:
  explicit Samples(const PlanningGraph& graph) : leader_(graph.tasks.size()), members_(graph.tasks.size()) {
    std::iota(leader_.begin(), leader_.end(), 0);
    for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
      for (const auto& [edge, producer] : graph.inputs_of(task)) leader_[find(static_cast<int>(task))] = find(producer);
    }
    for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
      leader_[task] = find(static_cast<int>(task));
      members_[leader_[task]].push_back(static_cast<int>(task));
    }
    const auto section = [&](int task) { return graph.tasks[task].section; };
    for (std::vector<int>& members : members_) {
      std::sort(members.begin(), members.end(), [&](int a, int b) { return section(a) < section(b); });
      const auto same_section = [&](int a, int b) { return section(a) == section(b); };
      if (std::adjacent_find(members.begin(), members.end(), same_section) != members.end()) members.clear();
    }
  }

  /// Returns the tasks of its sample, including itself; empty if some section has two of the linked tasks.
  [[nodiscard]] const std::vector<int>& with(int task) const { return members_[leader_[task]]; }

 private:
  int find(int task) {
    while (leader_[task] != task) task = leader_[task] = leader_[leader_[task]];
    return task;
  }

  std::vector<int> leader_;
  std::vector<std::vector<int>> members_;
};

/// A random change of the rules that can be undone.
class Move {
 public:
  Move(const PlanningGraph& graph, const Samples& samples, int last_task, DispatchRules& rules, Random& random)
      : rules_(rules) {
    if (random.uniform() < switch_share + 2.0 / static_cast<double>(graph.tasks.size() + 4)) {
      saved_ = switches_of(rules);
      switched_ = true;
      flip_switch(random);
      return;
    }
    if (random.uniform() < last_share) {
      advance(graph, samples, last_task, random);
      return;
    }
    const auto& section = graph.sections[choose_section(graph, random)];
    const auto count = static_cast<std::uint64_t>(section.tasks);
    if (count < 2) return;
    const std::size_t from = section.first_task + random.below(count);
    // Near and far moves are equally likely: distances are uniform in their logarithm.
    const double reach = std::exp(random.uniform() * std::log(static_cast<double>(count)));
    const std::size_t distance = std::min<std::size_t>(static_cast<std::size_t>(reach), count - 1);
    const std::size_t begin = section.first_task;
    const std::size_t end = begin + count;
    const bool up = random.below(2) == 0;
    const std::size_t to = up ? (from + distance < end ? from + distance : begin + (from + distance - end))
                              : (from >= begin + distance ? from - distance : end - (distance - (from - begin)));
    relocated_ = random.below(2) == 0;
    const int task = rules_.order[from];
    const int other = rules_.order[to];
    apply({from, to});
    if (random.uniform() < sample_share) take_along(graph, samples, task, other);
  }

  void undo() {
    if (switched_) {
      std::vector<int> order = std::move(rules_.order);
      rules_ = saved_;
      rules_.order = std::move(order);
      return;
    }
    while (shifts_ > 0) {
      const Shift& last = done_[--shifts_];
      change(last.to, last.from);
    }
  }

 private:
  /// Returns a copy of all rules but the order, which is long.
  static DispatchRules switches_of(DispatchRules& rules) {
    std::vector<int> order = std::move(rules.order);
    DispatchRules copy = rules;
    rules.order = std::move(order);
    return copy;
  }

  static std::size_t choose_section(const PlanningGraph& graph, Random& random) {
    return random.below(graph.sections.size());
  }

  void flip_switch(Random& random) {
    constexpr std::array thetas{0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0, forward_first};
    constexpr std::array depths{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 1e9};
    switch (random.below(11)) {
      case 7:
        rules_.last_lane_first = !rules_.last_lane_first;
        break;
      case 8:
        rules_.whole_tasks = !rules_.whole_tasks;
        break;
      case 6:
        if (!rules_.slots_at_start.empty()) rules_.slots_at_start[random.below(rules_.slots_at_start.size())] ^= 1;
        break;
      case 5:
        rules_.device_order = static_cast<DispatchRules::DeviceOrder>(random.below(3));
        break;
      case 3:
      case 4:
        if (rules_.depth.empty()) break;
        rules_.depth[random.below(rules_.depth.size())] = depths[random.below(depths.size())];
        break;
      case 2:
        rules_.joint_slots = static_cast<DispatchRules::JointSlots>(random.below(3));
        break;
      case 0:
        rules_.hungry_producers_first = !rules_.hungry_producers_first;
        break;
      case 1:
        rules_.ordered_gradients = !rules_.ordered_gradients;
        break;
      default:
        rules_.theta[random.below(rules_.theta.size())] = thetas[random.below(thetas.size())];
    }
  }

  /// Moves ahead, in its section, a task of the sample that ended last or, without samples, the last task itself.
  void advance(const PlanningGraph& graph, const Samples& samples, int last_task, Random& random) {
    const std::vector<int>& sample = samples.with(last_task);
    const int task = sample.empty() ? last_task : sample[random.below(sample.size())];
    const std::size_t from = place_of(graph, task);
    const std::size_t begin = graph.sections[graph.tasks[task].section].first_task;
    if (from == begin) return;
    relocated_ = true;
    apply({from, begin + random.below(from - begin)});
  }

  /// Moves the sample, in the other sections, to the place of the sample whose place it has taken.
  void take_along(const PlanningGraph& graph, const Samples& samples, int task, int other) {
    const std::vector<int>& others = samples.with(other);
    for (const int along : samples.with(task)) {
      const int section = graph.tasks[along].section;
      const auto match =
          std::find_if(others.begin(), others.end(), [&](int n) { return graph.tasks[n].section == section; });
      if (along == task || match == others.end()) continue;
      if (shifts_ == done_.size()) return;
      apply({place_of(graph, along), place_of(graph, *match)});
    }
  }

  [[nodiscard]] std::size_t place_of(const PlanningGraph& graph, int task) const {
    const PlanningGraph::Section& section = graph.sections[graph.tasks[task].section];
    const auto first = rules_.order.begin() + section.first_task;
    return static_cast<std::size_t>(std::find(first, first + section.tasks, task) - rules_.order.begin());
  }

  struct Shift {
    std::size_t from = 0;
    std::size_t to = 0;
  };

  void apply(Shift shift) {
    change(shift.from, shift.to);
    done_[shifts_++] = shift;
  }

  void change(std::size_t from, std::size_t to) {
    const auto first = rules_.order.begin() + static_cast<std::ptrdiff_t>(from);
    const auto second = rules_.order.begin() + static_cast<std::ptrdiff_t>(to);
    if (!relocated_) {
      std::iter_swap(first, second);
    } else if (from < to) {
      std::rotate(first, first + 1, second + 1);
    } else {
      std::rotate(second, first, first + 1);
    }
  }

  DispatchRules& rules_;
  DispatchRules saved_;
  std::array<Shift, 8> done_;
  std::size_t shifts_ = 0;
  bool switched_ = false;
  bool relocated_ = false;
};

/// Compares schedules of equal makespan by how long the critical lanes wait, and how much work is late. The makespan
/// does not show that fewer lanes are late than before.
class Slack {
 public:
  Slack(const PlanningGraph& graph, double due_ms) : due_ms_(due_ms) {
    const auto load = [](const PlanningGraph::Section& section) { return section.work_ms / section.rate; };
    const auto most = std::max_element(graph.sections.begin(), graph.sections.end(),
                                       [&](const auto& a, const auto& b) { return load(a) < load(b); });
    critical_ = static_cast<int>(most - graph.sections.begin());
    lanes_ = most->lanes;
  }

  /// Returns the slack of the latest run, per critical lane.
  [[nodiscard]] double of(const Simulator& simulator) const {
    constexpr double of_idle = 0.3;
    constexpr double of_late = 4.0;
    return (of_idle * simulator.idle_ms(critical_) + of_late * simulator.late_ms(due_ms_)) / lanes_;
  }

 private:
  double due_ms_ = 0;
  int critical_ = 0;
  double lanes_ = 1;
};

double mean_task_ms(const PlanningGraph& graph) {
  double work_ms = 0;
  for (const PlanningGraph::Section& section : graph.sections) work_ms += section.work_ms;
  return work_ms / static_cast<double>(std::max<std::size_t>(graph.tasks.size(), 1));
}

/// Temperature and weight of Slack. Both fall with the evaluations since the start or the latest reheating, first fast
/// and then ever slower, so that they suit any budget without knowing it.
class Cooling {
 public:
  /// Returns the temperature, as a share of a task's mean time, forward and backward.
  [[nodiscard]] double temperature() const { return std::max(1e-4, 0.07 * std::pow(1 + age_ / 20, -0.6)); }
  [[nodiscard]] double slack_weight() const { return 1 / (1 + age_ / 200); }
  void count(bool improved) {
    ++age_;
    unimproved_ = improved ? 0 : unimproved_ + 1;
  }
  /// Reheats, and returns true, if nothing better was found for long.
  bool reheat() {
    if (unimproved_ < std::max(300.0, age_ / 2)) return false;
    unimproved_ = 0;
    age_ /= 8;
    return true;
  }

 private:
  double age_ = 0;
  double unimproved_ = 0;
};

}  // namespace

double Spending::run(Simulator& simulator, const DispatchRules& rules, double cutoff_ms) {
  const std::int64_t before = simulator.steps();
  const double makespan_ms = simulator.run(rules, cutoff_ms);
  steps_ += simulator.steps() - before;
  ++evaluations_;
  return makespan_ms;
}

double Spending::share() const {
  if (budget_.until) {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - budget_.since) /
           std::chrono::duration<double>(*budget_.until - budget_.since);
  }
  if (budget_.evaluations > 0) return static_cast<double>(evaluations_) / static_cast<double>(budget_.evaluations);
  return static_cast<double>(steps_) / static_cast<double>(budget_.steps);
}

Candidate anneal(Simulator& simulator, const PlanningGraph& graph, const Candidate& start, Spending& spending,
                 Random& random, const std::function<void(const Candidate&)>& improved) {
  const Samples samples(graph);
  const Slack slack(graph, spending.good_enough_ms());
  const double scale_ms = mean_task_ms(graph);
  Candidate best = start;
  DispatchRules rules;
  double current_ms = 0;
  double current_slack_ms = 0;
  int last_task = 0;
  const auto go_to = [&](const Candidate& candidate) {
    rules = candidate.rules;
    current_ms = spending.run(simulator, rules, std::numeric_limits<double>::infinity());
    current_slack_ms = slack.of(simulator);
    last_task = simulator.last_task();
  };
  Cooling cooling;
  go_to(start);
  while (best.makespan_ms > spending.good_enough_ms() && spending.share() < 1) {
    if (cooling.reheat()) go_to(best);
    const double weight = cooling.slack_weight();
    Move move(graph, samples, last_task, rules, random);
    // The threshold is drawn before the evaluation, which may then stop as soon as it is passed.
    const double threshold_ms =
        current_ms + weight * current_slack_ms - cooling.temperature() * scale_ms * std::log(1.0 - random.uniform());
    const double makespan_ms = spending.run(simulator, rules, threshold_ms);
    cooling.count(makespan_ms < best.makespan_ms);
    if (makespan_ms < best.makespan_ms) {
      best = {rules, makespan_ms};
      if (improved) improved(best);
    }
    const double slack_ms = makespan_ms > threshold_ms ? 0 : slack.of(simulator);
    if (makespan_ms + weight * slack_ms > threshold_ms) {
      move.undo();
      continue;
    }
    current_ms = makespan_ms;
    current_slack_ms = slack_ms;
    last_task = simulator.last_task();
  }
  return best;
}

}  // namespace maestro
