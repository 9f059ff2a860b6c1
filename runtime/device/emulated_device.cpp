// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/emulated_device.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace maestro {

EmulatedClock::EmulatedClock() : thread_([schedule = schedule_] { run(*schedule); }) {}

EmulatedClock::~EmulatedClock() {
  stop();
  if (thread_.joinable()) thread_.detach();  // the clock ends on its thread, which ends when the call returns
}

void EmulatedClock::call_at(Time time, std::function<void()> call) {
  const std::shared_ptr<Schedule> schedule = schedule_;  // once the call is in it, the call may release the clock
  const std::lock_guard lock(schedule->mutex);
  if (schedule->stopping) return;
  std::vector<Call>& calls = schedule->calls;
  const bool first = calls.empty() || time < calls.front().time;
  calls.push_back({time, schedule->next_number++, std::move(call)});
  std::ranges::push_heap(calls, std::greater<>());
  if (first) schedule->wake.notify_one();
}

void EmulatedClock::run(Schedule& schedule) {
  auto& [mutex, wake, calls, next_number, stopping] = schedule;
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (calls.empty()) {
      wake.wait(lock, [&] { return schedule.stopping || !schedule.calls.empty(); });
      continue;
    }
    const Time next = calls.front().time;
    if (std::chrono::steady_clock::now() < next) {
      wake.wait_until(lock, next);
      continue;
    }
    std::ranges::pop_heap(calls, std::greater<>());
    std::function<void()> call = std::move(calls.back().run);
    calls.pop_back();
    lock.unlock();
    call();
    call = nullptr;  // may release the clock
    lock.lock();
  }
}

void EmulatedClock::stop() {
  {
    const std::lock_guard lock(schedule_->mutex);
    schedule_->stopping = true;
  }
  schedule_->wake.notify_one();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

EmulatedDevice::EmulatedDevice(std::string name, const OperatorTable& ops, std::shared_ptr<EmulatedClock> clock)
    : name_(std::move(name)), ops_(&ops), clock_(std::move(clock)) {}

void EmulatedDevice::enqueue(Priority priority, Work work) {
  EmulatedClock::Time from = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopped) return;
    (priority == Priority::critical ? state_->critical : state_->background).push_back(std::move(work));
    if (state_->busy) return;
    state_->busy = true;
    from = std::max(from, state_->free_from);
  }
  begin({{state_, from}}, clock_);
}

std::optional<EmulatedDevice::Work> EmulatedDevice::take(State& state, EmulatedClock::Time from) {
  const std::lock_guard lock(state.mutex);
  auto& queue = state.critical.empty() ? state.background : state.critical;
  if (queue.empty() || state.stopped) {
    state.busy = false;
    state.free_from = from;
    return std::nullopt;
  }
  std::optional<Work> work(std::move(queue.front()));
  queue.pop_front();
  return work;
}

std::optional<JointWork::Begun> JointWork::arrived(EmulatedDevice::Part part, EmulatedClock::Time from) {
  const std::lock_guard lock(mutex_);
  begun_.parts.push_back(std::move(part));
  begun_.from = std::max(begun_.from, from);
  if (--missing_ > 0) return std::nullopt;
  return std::move(begun_);
}

void EmulatedDevice::begin(std::vector<Free> free, const std::shared_ptr<EmulatedClock>& clock) {
  while (!free.empty()) {
    auto [state, from] = std::move(free.back());
    free.pop_back();
    std::optional<Work> work = take(*state, from);
    if (!work) continue;
    JointWork::Begun begun{{}, from};
    if (work->joint == nullptr) {
      begun.parts.push_back({std::move(state), std::move(work->run)});
    } else {
      auto joined = work->joint->arrived({std::move(state), std::move(work->run)}, from);
      if (!joined) continue;
      begun = *std::move(joined);
    }
    const EmulatedClock::Time end = begun.from + work->lasts;
    if (end > std::chrono::steady_clock::now() + timer_resolution) {
      end_at(end, std::move(begun.parts), clock);
      continue;
    }
    run(begun.parts, end, free);  // ED-4
  }
}

void EmulatedDevice::run(const std::vector<Part>& parts, EmulatedClock::Time end, std::vector<Free>& free) {
  for (const Part& part : parts) {
    {
      const std::lock_guard lock(part.state->mutex);
      if (part.state->stopped) continue;
    }
    part.run();
    free.push_back({part.state, end});
  }
}

void EmulatedDevice::end_at(EmulatedClock::Time end, std::vector<Part> parts,
                            const std::shared_ptr<EmulatedClock>& clock) {
  // The clock must not keep itself alive through the calls it holds.
  clock->call_at(end, [parts = std::move(parts), weak = std::weak_ptr(clock), end] {
    std::vector<Free> free;
    run(parts, end, free);
    if (const auto alive = weak.lock()) begin(std::move(free), alive);  // ED-2
  });
}

void EmulatedDevice::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->critical.clear();
  state_->background.clear();
}

}  // namespace maestro
