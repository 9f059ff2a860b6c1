// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/emulated_device.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace maestro {

EmulatedClock::EmulatedClock() : thread_([schedule = schedule_] { run(*schedule); }) {}

EmulatedClock::~EmulatedClock() {
  stop();
  if (thread_.joinable()) thread_.detach();  // this is its thread, which ends when the call returns
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

void EmulatedDevice::submit_lasting(std::chrono::nanoseconds lasts, Priority priority, std::function<void()> work) {
  EmulatedClock::Time from = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopped) return;
    (priority == Priority::critical ? state_->critical : state_->background).push_back({lasts, std::move(work)});
    if (state_->busy) return;
    state_->busy = true;
    from = std::max(from, state_->free_from);
  }
  begin(state_, clock_, from);
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

void EmulatedDevice::begin(const std::shared_ptr<State>& state, const std::shared_ptr<EmulatedClock>& clock,
                           EmulatedClock::Time from) {
  std::optional<Work> work = take(*state, from);
  while (work && from + work->lasts <= std::chrono::steady_clock::now() + timer_resolution) {  // ED-4
    work->run();
    from += work->lasts;
    work = take(*state, from);
  }
  if (!work) return;
  const EmulatedClock::Time end = from + work->lasts;
  // The clock must not keep itself alive through the calls it holds.
  clock->call_at(end, [state, weak = std::weak_ptr(clock), end, run = std::move(work->run)] {
    {
      const std::lock_guard lock(state->mutex);
      if (state->stopped) return;
    }
    run();
    if (const auto alive = weak.lock()) begin(state, alive, end);  // ED-2
  });
}

void EmulatedDevice::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->critical.clear();
  state_->background.clear();
}

}  // namespace maestro
