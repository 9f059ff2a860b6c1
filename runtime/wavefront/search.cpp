#include "runtime/wavefront/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace maestro {

namespace {

constexpr double first_temperature = 0.15;  // of the mean time of a task, forward and backward
constexpr double last_temperature = 1e-3;
constexpr double switch_share = 0.06;  // of all moves; more where orders are short

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// Where an order was changed, so that it can be changed back.
class Move {
 public:
  Move(const PlanningGraph& graph, DispatchRules& rules, Random& random) : rules_(rules) {
    if (random.uniform() < switch_share + 2.0 / static_cast<double>(graph.tasks.size() + 4)) {
      saved_ = switches_of(rules);
      switched_ = true;
      flip_switch(random);
      return;
    }
    const auto& section = graph.sections[choose_section(graph, random)];
    const auto count = static_cast<std::uint64_t>(section.tasks);
    if (count < 2) return;
    first_ = at(section.first_task) + random.below(count);
    // Near and far moves alike: distances are uniform in their logarithm.
    const double reach = std::exp(random.uniform() * std::log(static_cast<double>(count)));
    const std::size_t distance = std::min<std::size_t>(static_cast<std::size_t>(reach), count - 1);
    const std::size_t begin = at(section.first_task);
    const std::size_t end = begin + count;
    const bool up = random.below(2) == 0;
    second_ = up ? (first_ + distance < end ? first_ + distance : begin + (first_ + distance - end))
                 : (first_ >= begin + distance ? first_ - distance : end - (distance - (first_ - begin)));
    relocated_ = random.below(2) == 0;
    change(first_, second_);
  }

  void undo() {
    if (switched_) {
      std::vector<int> order = std::move(rules_.order);
      rules_ = saved_;
      rules_.order = std::move(order);
    } else {
      change(second_, first_);
    }
  }

 private:
  /// Everything but the order, which is long.
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
  std::size_t first_ = 0;
  std::size_t second_ = 0;
  bool switched_ = false;
  bool relocated_ = false;
};

double mean_task_ms(const PlanningGraph& graph) {
  double work_ms = 0;
  for (const PlanningGraph::Section& section : graph.sections) work_ms += section.work_ms;
  return work_ms / static_cast<double>(std::max<std::size_t>(graph.tasks.size(), 1));
}

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
                 double to, Random& random) {
  Candidate best = start;
  DispatchRules rules = start.rules;
  double current_ms = start.makespan_ms;
  const double from = spending.share();
  const double scale_ms = mean_task_ms(graph);
  while (best.makespan_ms > spending.good_enough_ms()) {
    const double spent = spending.share();
    if (spent >= to) break;
    const double progress = (spent - from) / (to - from);
    const double temperature = first_temperature * std::pow(last_temperature / first_temperature, progress) * scale_ms;
    Move move(graph, rules, random);
    // The threshold is drawn before the evaluation, which may then stop as soon as it is passed.
    const double threshold_ms = current_ms - temperature * std::log(1.0 - random.uniform());
    const double makespan_ms = spending.run(simulator, rules, threshold_ms);
    if (makespan_ms > threshold_ms) {
      move.undo();
      continue;
    }
    current_ms = makespan_ms;
    if (makespan_ms < best.makespan_ms) best = {rules, makespan_ms};
  }
  return best;
}

}  // namespace maestro
