// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's streams and events. Errors are DeviceError.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

/// Makes a device current for this thread. At the end restores the earlier device, if this class had made it current;
/// otherwise leaves the thread as it is, because making device 0 current starts it, with all the memory that takes,
/// even if it is not used. Never throws: the calls in between fail if the device could not be made current.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (given()) static_cast<void>(cudaGetDevice(&before_));
    keep(device);
  }
  ~CurrentDevice() {
    if (before_ != none) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  /// Makes the device current permanently.
  static void keep(int device) {
    static_cast<void>(cudaSetDevice(device));
    given() = true;
  }

 private:
  static constexpr int none = -1;
  /// Returns whether this thread has been given a device.
  static bool& given() {
    thread_local bool given_one = false;
    return given_one;
  }
  int before_ = none;
};

/// Returns CUDA's value of a priority: the ends of the device's range for critical and background work.
[[nodiscard]] inline int stream_priority(Priority priority) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  return priority == Priority::critical ? greatest : least;
}

/// A stream of the current device. Neither waits for the legacy default stream nor delays it.
class Stream {
 public:
  explicit Stream(Priority priority = Priority::critical) {
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, stream_priority(priority)), "a stream");
  }
  /// Takes ownership of a stream made by the driver.
  explicit Stream(cudaStream_t made) : stream_(made) {}
  ~Stream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  /// Waits for all its work. Not used in the steady state.
  void synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event of the current device.
class Event {
 public:
  /// Creates an event. `timed`: cudaEventElapsedTime may be used.
  explicit Event(bool timed = false) {
    check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "an event");
  }
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class EventPool;

/// An event on loan; returns to the pool by itself, even after the pool's other owners have ended.
class PooledEvent {
 public:
  PooledEvent(std::shared_ptr<EventPool> pool, Event event) : pool_(std::move(pool)), event_(std::move(event)) {}
  ~PooledEvent();
  PooledEvent(PooledEvent&&) noexcept = default;
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(event_, other.event_);
    return *this;
  }
  [[nodiscard]] cudaEvent_t get() const { return event_.get(); }
  [[nodiscard]] int device() const;

 private:
  std::shared_ptr<EventPool> pool_;
  Event event_;
};

/// Events of a device, created if none is free, which does not happen in the steady state. Thread-safe; shared with its
/// events, which may outlive it.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(int device, bool timed = false) : device_(device), timed_(timed) {}
  ~EventPool() {
    const CurrentDevice current(device_);
    free_.clear();
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] PooledEvent take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Event event = std::move(free_.back());
        free_.pop_back();
        return {shared_from_this(), std::move(event)};
      }
    }
    const CurrentDevice current(device_);
    return {shared_from_this(), Event(timed_)};
  }
  void give_back(Event event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(event));
  }

 private:
  int device_;
  bool timed_;
  std::mutex mutex_;
  std::vector<Event> free_;
};

inline int PooledEvent::device() const {
  return pool_->device();
}

inline PooledEvent::~PooledEvent() {
  if (pool_ != nullptr && event_.get() != nullptr) pool_->give_back(std::move(event_));
}

}  // namespace maestro::cuda
