// SPDX-License-Identifier: Apache-2.0
// A simulation's clock and future events: pass ends and transfer arrivals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace maestro {

/// Ends of passes are in a heap. Transfers are in a queue for each channel: a channel's transfers take equally long,
/// and so arrive in sending order. Not thread-safe; no allocation once it has held as many events.
///
/// EV-1 (time order): no event is taken before its time; ends of passes are taken by time, and arrivals of a channel in
/// sending order.
class EventQueue {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  EventQueue(std::size_t lanes, std::size_t channels) : transfers_(channels), next_arrival_(channels) {
    ends_.reserve(lanes);
    reset();
  }

  /// Sets the clock to 0 and drops all events.
  void reset() {
    now_ms_ = 0;
    ends_.clear();
    for (Channel& channel : transfers_) {
      channel.queue.clear();
      channel.next = 0;
    }
    next_arrival_.assign(next_arrival_.size(), never);
  }

  [[nodiscard]] double now_ms() const { return now_ms_; }
  /// Returns the time of the next event; `never` when there is none.
  [[nodiscard]] double next_ms() const {
    double next = ends_.empty() ? never : ends_.front().at_ms;
    for (const double arrival : next_arrival_) next = std::min(next, arrival);
    return next;
  }
  /// Sets the clock; `at_ms` is not after next_ms().
  void advance_to(double at_ms) { now_ms_ = at_ms; }

  /// Adds the end of the lane's pass.
  void add_end(double at_ms, int lane) {
    std::size_t hole = ends_.size();
    ends_.push_back({at_ms, lane});
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 2;
      if (ends_[parent].at_ms <= at_ms) break;
      ends_[hole] = ends_[parent];
      hole = parent;
    }
    ends_[hole] = {at_ms, lane};
  }
  /// Returns a lane whose pass ends by now, each pass once; -1 when there is none.
  int take_end() {
    if (ends_.empty() || ends_.front().at_ms > now_ms_) return -1;
    const int lane = ends_.front().number;
    const Event last = ends_.back();
    ends_.pop_back();
    if (!ends_.empty()) ends_[hole_for(last)] = last;
    return lane;
  }

  /// Adds a transfer; `at_ms` is not before the time of the channel's previous transfer.
  void send(std::size_t channel, double at_ms, int task) {
    transfers_[channel].queue.push_back({at_ms, task});
    next_arrival_[channel] = std::min(next_arrival_[channel], at_ms);
  }
  /// Returns the task of the channel's next transfer that has arrived; -1 when there is none.
  int take_arrival(std::size_t channel) {
    if (next_arrival_[channel] > now_ms_) return -1;
    Channel& from = transfers_[channel];
    const int task = from.queue[from.next++].number;
    next_arrival_[channel] = from.next < from.queue.size() ? from.queue[from.next].at_ms : never;
    return task;
  }

 private:
  struct Event {
    double at_ms = 0;
    int number = 0;  // number of the lane or the task
  };
  struct Channel {
    std::vector<Event> queue;
    std::size_t next = 0;
  };

  /// Moves the root's descendants up until `event` fits, and returns its place.
  std::size_t hole_for(const Event& event) {
    const std::size_t count = ends_.size();
    std::size_t hole = 0;
    while (true) {
      std::size_t child = 2 * hole + 1;
      if (child >= count) break;
      if (child + 1 < count && ends_[child + 1].at_ms < ends_[child].at_ms) ++child;
      if (ends_[child].at_ms >= event.at_ms) break;
      ends_[hole] = ends_[child];
      hole = child;
    }
    return hole;
  }

  double now_ms_ = 0;
  std::vector<Event> ends_;  // heap
  std::vector<Channel> transfers_;
  std::vector<double> next_arrival_;  // by channel
};

}  // namespace maestro
