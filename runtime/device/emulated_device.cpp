// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/emulated_device.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace maestro {

EmulatedClock::EmulatedClock() : thread_([this] { run(); }) {}

void EmulatedClock::call_at(Time time, std::function<void()> call) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    first = calls_.empty() || time < calls_.front().time;
    calls_.push_back({time, next_number_++, std::move(call)});
    std::ranges::push_heap(calls_, std::greater<>());
  }
  if (first) wake_.notify_one();
}

void EmulatedClock::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (calls_.empty()) {
      wake_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      continue;
    }
    const Time next = calls_.front().time;
    if (std::chrono::steady_clock::now() < next) {
      wake_.wait_until(lock, next);
      continue;
    }
    std::ranges::pop_heap(calls_, std::greater<>());
    const std::function<void()> call = std::move(calls_.back().run);
    calls_.pop_back();
    lock.unlock();
    call();
    lock.lock();
  }
}

void EmulatedClock::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
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
