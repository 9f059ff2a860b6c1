// SPDX-License-Identifier: Apache-2.0
// Watches a single thread's calls into a library that may never return, such as libfabric's shm provider, which spins
// on a lock in shared memory that a killed process may still hold.
//
// LW-1 (one owner): a call is either left by its thread or condemned by the watcher, never both.
// LW-2 (patience): the watcher condemns only a call that it has seen at `looks` looks in a row, so that a process that
//       was stopped and continued, or starved, is not mistaken for a stuck process.
#pragma once

#include <atomic>
#include <cstdint>

namespace maestro {

/// enter() and leave() belong to the watched thread, look() to one watcher.
class LibraryCall {
 public:
  explicit LibraryCall(int looks) : looks_(looks) {}

  void enter() { state_.store(++calls_ << 2 | inside, std::memory_order_release); }
  /// Returns false if the call was condemned meanwhile: the thread must then touch no shared object, and end.
  [[nodiscard]] bool leave() {
    auto expected = calls_ << 2 | inside;
    return state_.compare_exchange_strong(expected, calls_ << 2 | outside, std::memory_order_acq_rel);
  }
  /// Returns true once, when the present call is condemned. Called at regular intervals.
  [[nodiscard]] bool look() {
    auto state = state_.load(std::memory_order_acquire);
    if ((state & 3) != inside || state != seen_state_) {
      seen_state_ = state;
      seen_ = 1;
    } else {
      ++seen_;
    }
    if ((state & 3) != inside || seen_ < looks_) return false;
    return state_.compare_exchange_strong(state, (state & ~std::uint64_t{3}) | condemned, std::memory_order_acq_rel);
  }

 private:
  static constexpr std::uint64_t outside = 0;
  static constexpr std::uint64_t inside = 1;
  static constexpr std::uint64_t condemned = 2;

  std::atomic<std::uint64_t> state_{outside};  // number of the call, then its phase
  std::uint64_t calls_ = 0;                    // used by the watched thread
  const int looks_;
  std::uint64_t seen_state_ = 0;  // the watcher's
  int seen_ = 0;
};

}  // namespace maestro
