// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/device_queues.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace maestro {

void DeviceQueues::submit(std::span<const int> devices, Priority priority, double ms, Done done) {
  const Number work = work_.put({{devices.begin(), devices.end()}, priority, ms, std::move(done)});
  for (const int device : devices) {
    const auto at = static_cast<std::size_t>(device);
    if (at >= queues_.size()) queues_.resize(at + 1);
    const auto behind = [&](Number other) {
      return priority == Priority::critical && !work_[other].begun && work_[other].priority != Priority::critical;
    };
    queues_[at].insert(std::ranges::find_if(queues_[at], behind), work);
  }
  try_start(work);
}

void DeviceQueues::try_start(Number number) {
  Work& work = work_[number];
  const bool turn = std::ranges::all_of(work.devices, [&](int device) { return queue_of(device).front() == number; });
  if (!turn) return;
  work.begun = true;
  work.start_ms = clock_->now_ms();
  run(work.devices, work.priority, work.ms, [this, number] { end(number); });
}

void DeviceQueues::run(std::span<const int> devices, Priority priority, double ms, VirtualClock::Event done) {
  std::vector<int> shared;  // parts on separate cores end no later than others
  for (const int device : devices) {
    const auto at = static_cast<std::size_t>(device);
    if (at < core_of_.size() && core_of_[at] >= 0) shared.push_back(device);
  }
  if (shared.empty()) return clock_->after(ms, std::move(done));
  if (shared.size() == 1) return run_on_core(shared.front(), priority, ms, std::move(done));
  const auto parts = std::make_shared<std::size_t>(shared.size());
  for (const int device : shared) {
    run_on_core(device, priority, ms, [parts, done] {
      if (--*parts == 0) done();
    });
  }
}

void DeviceQueues::run_on_core(int device, Priority priority, double ms, VirtualClock::Event done) {
  const auto at = static_cast<std::size_t>(device);
  const double demand = at < demand_of_.size() ? demand_of_[at] : 1;
  cores_.run(core_of_[at], demand < 1 ? Priority::critical : priority, ms, std::move(done), demand);
}

void DeviceQueues::end(Number number) {
  const Work work = work_.take(number);
  for (const int device : work.devices) queue_of(device).erase(queue_of(device).begin());
  for (std::size_t at = 0; at < work.devices.size(); ++at) {
    const auto& queue = queue_of(work.devices[at]);
    if (queue.empty()) continue;
    const auto same = [&](int device) {
      return !queue_of(device).empty() && queue_of(device).front() == queue.front();
    };
    const bool seen = std::any_of(work.devices.begin(), work.devices.begin() + static_cast<std::ptrdiff_t>(at), same);
    if (!seen) try_start(queue.front());
  }
  work.done(work.start_ms);
}

}  // namespace maestro
