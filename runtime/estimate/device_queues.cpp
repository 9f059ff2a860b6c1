// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/device_queues.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

void DeviceQueues::submit(std::span<const int> devices, Priority priority, double ms, Done done) {
  const auto work = std::make_shared<Work>(Work{{devices.begin(), devices.end()}, priority, ms, std::move(done)});
  for (const int device : devices) {
    const auto at = static_cast<std::size_t>(device);
    if (at >= queues_.size()) queues_.resize(at + 1);
    const auto behind = [&](const SharedWork& other) {
      return priority == Priority::critical && !other->begun && other->priority != Priority::critical;
    };
    queues_[at].insert(std::ranges::find_if(queues_[at], behind), work);
  }
  try_start(work);
}

void DeviceQueues::try_start(const SharedWork& work) {
  const bool turn = std::ranges::all_of(
      work->devices, [&](int device) { return queues_[static_cast<std::size_t>(device)].front() == work; });
  if (!turn) return;
  work->begun = true;
  run(work->devices, work->ms, [this, work, start_ms = clock_->now_ms()] { end(work, start_ms); });
}

void DeviceQueues::run(std::span<const int> devices, double ms, VirtualClock::Event done) {
  std::vector<int> shared;  // parts on cores of their own end no later than others
  for (const int device : devices) {
    const auto at = static_cast<std::size_t>(device);
    if (at < core_of_.size() && core_of_[at] >= 0) shared.push_back(core_of_[at]);
  }
  if (shared.empty()) return clock_->after(ms, std::move(done));
  const auto parts = std::make_shared<std::size_t>(shared.size());
  for (const int core : shared) {
    cores_.run(core, ms, [parts, done] {
      if (--*parts == 0) done();
    });
  }
}

void DeviceQueues::end(const SharedWork& work, double start_ms) {
  std::vector<SharedWork> next;
  for (const int device : work->devices) {
    auto& queue = queues_[static_cast<std::size_t>(device)];
    queue.pop_front();
    if (!queue.empty() && std::ranges::find(next, queue.front()) == next.end()) next.push_back(queue.front());
  }
  for (const SharedWork& waiting : next) try_start(waiting);
  work->done(start_ms);
}

}  // namespace maestro
