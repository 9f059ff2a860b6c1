// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/task_graph.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace maestro {

std::vector<DeviceKey> devices_of(const Workload& workload, std::size_t section, std::int64_t replica) {
  const std::vector<std::vector<int>>& devices = workload.sections[section].devices;
  if (devices.empty()) return {{section + 1, replica}};
  std::vector<DeviceKey> keys;
  for (const int device : devices[static_cast<std::size_t>(replica)]) keys.emplace_back(0, device);
  return keys;
}

std::vector<std::vector<TaskConsumer>> consumers_of(const Workload& workload) {
  std::vector<std::vector<TaskConsumer>> consumers(workload.tasks.size());
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    for (const TaskInput& input : workload.tasks[task].inputs) consumers[input.task].push_back({input.edge, task});
  }
  return consumers;
}

namespace {

/// Walks along the order of the passes: heads down the forward passes and up the backward passes, then tails the other
/// way.
class PathWalk {
 public:
  PathWalk(const Workload& workload, const std::vector<std::vector<TaskConsumer>>& consumers)
      : workload_(workload), consumers_(consumers), paths_(workload.tasks.size()) {}

  std::vector<PassPaths> run() && {
    const std::size_t count = workload_.tasks.size();
    for (std::size_t task = 0; task < count; ++task) paths_[task].forward_head = forward_head(task);
    for (std::size_t task = count; task-- > 0;) paths_[task].backward_head = backward_head(task);
    for (std::size_t task = 0; task < count; ++task) paths_[task].backward_tail = backward_tail(task);
    for (std::size_t task = count; task-- > 0;) paths_[task].forward_tail = forward_tail(task);
    return std::move(paths_);
  }

 private:
  bool trained(std::size_t task) const { return workload_.sections[workload_.tasks[task].section].has_backward; }

  double forward_head(std::size_t task) const {
    double head = 0;
    for (const TaskInput& input : workload_.tasks[task].inputs) {
      const double ended = paths_[input.task].forward_head + workload_.tasks[input.task].forward_ms;
      head = std::max(head, ended + workload_.edges[input.edge].transfer_ms);
    }
    return head;
  }

  double backward_head(std::size_t task) const {
    double head = paths_[task].forward_head + workload_.tasks[task].forward_ms;
    for (const TaskConsumer& consumer : consumers_[task]) {
      const WorkloadTask& reader = workload_.tasks[consumer.task];
      const PassPaths& path = paths_[consumer.task];
      head = std::max(head, trained(consumer.task)
                                ? path.backward_head + reader.backward_ms + workload_.edges[consumer.edge].transfer_ms
                                : path.forward_head + reader.forward_ms);
    }
    return head;
  }

  double backward_tail(std::size_t task) const {
    if (!trained(task)) return 0;
    double tail = 0;
    for (const TaskInput& input : workload_.tasks[task].inputs) {
      if (!trained(input.task)) continue;
      const double rest = workload_.tasks[input.task].backward_ms + paths_[input.task].backward_tail;
      tail = std::max(tail, workload_.edges[input.edge].transfer_ms + rest);
    }
    return tail;
  }

  double forward_tail(std::size_t task) const {
    double tail = trained(task) ? workload_.tasks[task].backward_ms + paths_[task].backward_tail : 0;
    for (const TaskConsumer& consumer : consumers_[task]) {
      const double rest = workload_.tasks[consumer.task].forward_ms + paths_[consumer.task].forward_tail;
      tail = std::max(tail, workload_.edges[consumer.edge].transfer_ms + rest);
    }
    if (trained(task)) return tail;
    // A section that is not trained sends nothing back: its producers continue as soon as it has run.
    for (const TaskInput& input : workload_.tasks[task].inputs) {
      if (!trained(input.task)) continue;
      tail = std::max(tail, workload_.tasks[input.task].backward_ms + paths_[input.task].backward_tail);
    }
    return tail;
  }

  const Workload& workload_;
  const std::vector<std::vector<TaskConsumer>>& consumers_;
  std::vector<PassPaths> paths_;
};

/// Starts of a task's passes and of downstream passes, relative to its forward pass.
class Turnaround {
 public:
  Turnaround(const Workload& workload, const std::vector<std::vector<TaskConsumer>>& consumers)
      : workload_(workload), consumers_(consumers) {}

  double of(std::size_t root) {
    starts_.clear();
    starts_[root].forward = 0;
    for (auto at = starts_.begin(); at != starts_.end(); ++at) {  // consumers are later, so the walk meets them all
      const double end = at->second.forward + workload_.tasks[at->first].forward_ms;
      for (const TaskConsumer& consumer : consumers_[at->first]) {
        double& start = starts_[consumer.task].forward;
        start = std::max(start, end + workload_.edges[consumer.edge].transfer_ms);
      }
    }
    for (auto at = starts_.rbegin(); at != starts_.rend(); ++at) at->second.backward = backward_start(at->first);
    return starts_.at(root).backward;
  }

 private:
  struct Starts {
    double forward = 0;
    double backward = 0;
  };

  double backward_start(std::size_t task) const {
    double start = starts_.at(task).forward + workload_.tasks[task].forward_ms;
    for (const TaskConsumer& consumer : consumers_[task]) {
      const WorkloadTask& reader = workload_.tasks[consumer.task];
      const Starts& reading = starts_.at(consumer.task);
      start = std::max(start, workload_.sections[reader.section].has_backward
                                  ? reading.backward + reader.backward_ms + workload_.edges[consumer.edge].transfer_ms
                                  : reading.forward + reader.forward_ms);
    }
    return start;
  }

  const Workload& workload_;
  const std::vector<std::vector<TaskConsumer>>& consumers_;
  std::map<std::size_t, Starts> starts_;
};

}  // namespace

std::vector<PassPaths> pass_paths(const Workload& workload, const std::vector<std::vector<TaskConsumer>>& consumers) {
  return PathWalk(workload, consumers).run();
}

std::vector<double> turnarounds(const Workload& workload, const std::vector<std::vector<TaskConsumer>>& consumers) {
  Turnaround turnaround(workload, consumers);
  std::vector<double> result;
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    const bool trained = workload.sections[workload.tasks[task].section].has_backward;
    result.push_back(trained ? turnaround.of(task) : workload.tasks[task].forward_ms);
  }
  return result;
}

}  // namespace maestro
