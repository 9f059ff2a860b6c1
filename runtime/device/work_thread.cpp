// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/work_thread.hpp"

namespace maestro {

WorkThread::WorkThread(std::function<void()> prepare)
    : thread_([this, prepare = std::move(prepare)] { run(prepare); }) {}

void WorkThread::submit(Priority priority, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    (priority == Priority::critical ? critical_ : background_).push_back(std::move(work));
  }
  wake_.notify_one();
}

void WorkThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void WorkThread::run(const std::function<void()>& prepare) {
  prepare();
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !critical_.empty() || !background_.empty(); });
      if (stopping_) break;
      auto& queue = critical_.empty() ? background_ : critical_;  // WT-2
      work = std::move(queue.front());
      queue.pop_front();
    }
    work();
  }
  // Dropped work may hold buffers and actors: destroyed here, without the lock.
  std::deque<std::function<void()>> critical;
  std::deque<std::function<void()>> background;
  const std::lock_guard lock(mutex_);
  critical.swap(critical_);
  background.swap(background_);
}

}  // namespace maestro
