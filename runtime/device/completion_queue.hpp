// SPDX-License-Identifier: Apache-2.0
// Functions to call when work on a device's streams is complete, which is detected by polling. Pure: the caller defines
// `Event` and its state.
//
// CQ-1 (stream order): completions of a stream are delivered in the order of add(), none before those added earlier.
// CQ-2 (exactly once): every completion is delivered exactly once: without text, or with the text of the failure.
// CQ-3 (failure of a stream): a failure on a stream fails everything that is queued after it there, with the same
//       text; other streams go on.
// CQ-4 (fairness): a round polls each stream for its oldest completions only, and begins with another stream than the
//       round before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace maestro {

/// The state of an event.
struct EventState {
  bool complete = false;
  std::string failure;  ///< not empty: the stream has failed
};

using StreamNumber = std::uint32_t;

/// Called once; must only enqueue. `failure` is empty, or a line.
using Completion = std::function<void(const std::string& failure)>;

/// Not thread-safe.
template <class Event>
class CompletionQueue {
 public:
  void add(StreamNumber stream, Event event, Completion done) {
    streams_[stream].push_back({std::move(event), std::move(done)});
    ++size_;
  }

  /// Delivers completions that `state_of`(const Event&) -> EventState reports complete. Returns the number delivered.
  template <class StateOf>
  std::size_t poll(const StateOf& state_of) {
    if (size_ == 0) return 0;
    const std::size_t before = size_;
    auto at = streams_.upper_bound(last_first_);
    if (at == streams_.end()) at = streams_.begin();
    last_first_ = at->first;  // CQ-4
    for (std::size_t left = streams_.size(); left > 0; --left) {
      poll_stream(at->second, state_of);
      at = at->second.empty() ? streams_.erase(at) : std::next(at);
      if (at == streams_.end()) at = streams_.begin();
    }
    return before - size_;
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Waiting {
    Event event;
    Completion done;
  };

  template <class StateOf>
  void poll_stream(std::deque<Waiting>& waiting, const StateOf& state_of) {
    std::string failure;
    while (!waiting.empty()) {
      if (failure.empty()) {
        const EventState state = state_of(std::as_const(waiting.front().event));
        if (!state.complete && state.failure.empty()) return;
        failure = state.failure;
      }
      const Waiting first = std::move(waiting.front());
      waiting.pop_front();
      --size_;
      first.done(failure);  // CQ-3
    }
  }

  std::map<StreamNumber, std::deque<Waiting>> streams_;
  StreamNumber last_first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace maestro
