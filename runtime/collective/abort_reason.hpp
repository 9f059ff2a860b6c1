// SPDX-License-Identifier: Apache-2.0
// The reason why a group was aborted: the first reason that is set stays.
//
// AB-1 (called once): a listener is called once, on the thread that sets the reason, or at once if a reason is set
//       already; it is never called after its registration has ended, and the end of a registration waits for a running
//       call.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace maestro {

/// The reason of a group's ranks in this process. Thread-safe.
class AbortReason {
 public:
  using Call = std::function<void()>;

  /// A listener's registration: ends with this object, which the reason outlives. Listeners neither set a reason nor
  /// end registrations, and no thread does either while it holds a lock that a listener takes.
  class Listener {
   public:
    Listener(AbortReason& reason, Call call) : reason_(&reason), call_(std::move(call)) { reason.add(*this); }
    ~Listener() { reason_->remove(*this); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    friend class AbortReason;
    AbortReason* reason_;
    Call call_;
  };

  void set(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (is_set_.load(std::memory_order_relaxed)) return;
      why_ = why.empty() ? "no reason was given" : why;
      is_set_.store(true, std::memory_order_release);
    }
    const std::lock_guard lock(listeners_mutex_);
    for (const Listener* listener : std::exchange(listeners_, {})) listener->call_();
  }
  /// Returns whether a reason is set; cheap, for waiting loops.
  [[nodiscard]] bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  void add(const Listener& listener) {
    const std::lock_guard lock(listeners_mutex_);
    // set() sets the reason first: either it is seen here, or set() sees the listener.
    if (is_set()) return listener.call_();
    listeners_.push_back(&listener);
  }
  void remove(const Listener& listener) {
    const std::lock_guard lock(listeners_mutex_);
    listeners_.remove(&listener);
  }

  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> is_set_ = false;
  std::mutex listeners_mutex_;
  std::list<const Listener*> listeners_;  // not called yet
};

}  // namespace maestro
