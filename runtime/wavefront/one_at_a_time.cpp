// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/one_at_a_time.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

class SerialRun {
 public:
  explicit SerialRun(const Workload& workload)
      : workload_(workload),
        consumers_(consumers_of(workload)),
        lane_(workload.tasks.size()),
        ordinal_(workload.tasks.size()),
        forward_end_(workload.tasks.size(), not_run),
        backward_end_(workload.tasks.size(), not_run),
        counts_(workload.sections.size()) {
    for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
      const std::size_t section = workload.tasks[task].section;
      ordinal_[task] = counts_[section]++;
      lane_[task] = static_cast<std::size_t>(ordinal_[task] % workload.sections[section].replicas);
    }
    for (const WorkloadSection& section : workload.sections) {
      in_flight_.emplace_back(static_cast<std::size_t>(section.replicas), 0);
    }
    for (const WorkloadEdge& edge : workload.edges) {
      waiting_.emplace_back(static_cast<std::size_t>(workload.sections[edge.to].replicas), 0);
    }
  }

  std::optional<Schedule> run() && {
    std::vector<std::size_t> bases(workload_.tasks.size());
    std::iota(bases.begin(), bases.end(), std::size_t{0});
    const auto share = [&](std::size_t task) {
      return (static_cast<double>(ordinal_[task]) + 1) / static_cast<double>(counts_[workload_.tasks[task].section]);
    };
    std::ranges::stable_sort(bases, {}, share);
    for (const std::size_t task : bases) {
      if (!(trained(task) ? backward(task) : forward(task))) return std::nullopt;
    }
    schedule_.makespan_ms = now_;
    return std::move(schedule_);
  }

 private:
  static constexpr double not_run = -1;
  [[nodiscard]] bool trained(std::size_t task) const {
    return workload_.sections[workload_.tasks[task].section].has_backward;
  }
  [[nodiscard]] std::int64_t& in_flight(std::size_t task) {
    return in_flight_[workload_.tasks[task].section][lane_[task]];
  }
  static bool room(std::int64_t used, std::int64_t limit) { return limit == no_limit || used < limit; }

  void add(std::size_t task, bool backward, double ready, double ms) {
    const double start = std::max(now_, ready);
    const auto replica = static_cast<std::int64_t>(lane_[task]);
    now_ = start + ms / workload_.sections[workload_.tasks[task].section].speed(replica);
    schedule_.passes.push_back({task, backward, replica, start, now_});
    (backward ? backward_end_ : forward_end_)[task] = now_;
  }

  bool forward(std::size_t task) {
    if (forward_end_[task] != not_run) return true;
    const WorkloadTask& given = workload_.tasks[task];
    double ready = 0;
    for (const TaskInput& input : given.inputs) {
      if (!forward(input.task)) return false;
      ready = std::max(ready, forward_end_[input.task] + workload_.edges[input.edge].transfer_ms);
    }
    const WorkloadSection& section = workload_.sections[given.section];
    if (section.has_backward && !room(in_flight(task), section.max_in_flight)) return false;
    for (const TaskInput& input : given.inputs) --waiting_[input.edge][lane_[task]];
    for (const TaskConsumer& consumer : consumers_[task]) {
      std::int64_t& waiting = waiting_[consumer.edge][lane_[consumer.task]];
      if (!room(waiting, workload_.edges[consumer.edge].slots)) return false;
      ++waiting;
    }
    in_flight(task) += section.has_backward ? 1 : 0;
    add(task, false, ready, given.forward_ms);
    return true;
  }

  bool backward(std::size_t task) {
    if (backward_end_[task] != not_run) return true;
    if (!forward(task)) return false;
    double ready = 0;
    for (const TaskConsumer& consumer : consumers_[task]) {
      const bool sends = trained(consumer.task);
      if (!(sends ? backward(consumer.task) : forward(consumer.task))) return false;
      const double end = (sends ? backward_end_ : forward_end_)[consumer.task];
      ready = std::max(ready, end + (sends ? workload_.edges[consumer.edge].transfer_ms : 0.0));
    }
    add(task, true, ready, workload_.tasks[task].backward_ms);
    --in_flight(task);
    return true;
  }

  const Workload& workload_;
  std::vector<std::vector<TaskConsumer>> consumers_;
  std::vector<std::size_t> lane_;
  std::vector<std::int64_t> ordinal_;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  std::vector<std::int64_t> counts_;                  // tasks by section
  std::vector<std::vector<std::int64_t>> in_flight_;  // [section][lane]
  std::vector<std::vector<std::int64_t>> waiting_;    // [edge][consumer lane]
  double now_ = 0;
  Schedule schedule_;
};

}  // namespace

std::optional<Schedule> one_at_a_time(const Workload& workload) {
  return SerialRun(workload).run();
}

}  // namespace maestro
