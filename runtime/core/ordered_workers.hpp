// SPDX-License-Identifier: Apache-2.0
// Threads that work on the elements of a sequence, and pass the results on in its order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace maestro {

/// OW-1 (in order): `sink` receives the result of every added element once, in the order of add(), on the thread that
///       calls add() and finish().
/// OW-2 (bounded): at most 2 * threads + 1 elements and results are held.
/// Exceptions of `work` and `sink` leave add() or finish(); after one, no further result is passed on.
template <class Element, class Made>
class OrderedWorkers {
 public:
  OrderedWorkers(std::size_t threads, std::function<Made(Element)> work, std::function<void(Made)> sink)
      : most_(2 * threads), work_(std::move(work)), sink_(std::move(sink)) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
  void add(Element element) {
    std::packaged_task<Made()> task([this, held = std::move(element)]() mutable { return work_(std::move(held)); });
    results_.push_back(task.get_future());
    {
      const std::scoped_lock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
    while (results_.size() > most_) pass_first();
  }
  void finish() {
    while (!results_.empty()) pass_first();
  }

 private:
  void pass_first() {
    std::future<Made> first = std::move(results_.front());
    results_.pop_front();
    sink_(first.get());
  }
  void run(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!added_.wait(lock, stop, [&] { return !tasks_.empty(); })) return;
      if (stop.stop_requested()) return;
      std::packaged_task<Made()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::size_t most_;
  std::function<Made(Element)> work_;
  std::function<void(Made)> sink_;
  std::deque<std::future<Made>> results_;  // used by the calling thread
  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<std::packaged_task<Made()>> tasks_;  // guarded by mutex_
  std::vector<std::jthread> threads_;             // last: they use everything above
};

}  // namespace maestro
