// SPDX-License-Identifier: Apache-2.0
#include "actors/process/start_thread.hpp"

#include <utility>

namespace maestro {

void StartThread::add(Start start) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (!thread_.joinable()) thread_ = std::jthread([this] { run(); });
  starts_.push_back(std::move(start));
  changed_.notify_one();
}

bool StartThread::close() {
  std::deque<Start> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  closed_ = true;
  std::swap(dropped, starts_);
  changed_.notify_one();
  return thread_.joinable();
}

void StartThread::stop() {
  if (close()) thread_.join();
}

void StartThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !starts_.empty(); });
    if (closed_) return;
    const Start start = std::move(starts_.front());
    starts_.pop_front();
    lock.unlock();
    start();
    lock.lock();
  }
}

}  // namespace maestro
