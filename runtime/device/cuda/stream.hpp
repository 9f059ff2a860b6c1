// Streams and events of CUDA with an owner. Errors are DeviceError.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

/// Whether this process works on the device already. True where the driver cannot be asked.
[[nodiscard]] inline bool has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* active);  // as cuda.h declares it; 0 is success
  static const GetState get_state = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<GetState>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  }();
  unsigned flags = 0;
  int active = 0;
  return get_state == nullptr || get_state(device, &flags, &active) != 0 || active != 0;
}

/// Makes a device current for this thread, and the one before it again at the end; unless nobody works on that one, as
/// on the first device, which is current on new threads: cudaSetDevice would make a context on it. Never throws: the
/// calls in between fail where it could not.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    static_cast<void>(cudaGetDevice(&before_));
    changed_ = before_ != device;
    static_cast<void>(cudaSetDevice(device));
  }
  ~CurrentDevice() {
    if (changed_ && has_context(before_)) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// What CUDA calls a priority: the device's range for critical and background work.
[[nodiscard]] inline int stream_priority(Priority priority) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  return priority == Priority::critical ? greatest : least;
}

/// Of the device that is current. Does not wait for the legacy default stream, nor it for this one.
class Stream {
 public:
  explicit Stream(Priority priority = Priority::critical) {
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, stream_priority(priority)), "a stream");
  }
  /// Takes what a driver's call has made.
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
  /// Waits for all its work. Not in the steady state.
  void synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Of the device that is current.
class Event {
 public:
  /// `timed`: cudaEventElapsedTime may be asked.
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

/// An event on loan; goes back by itself, also after the pool's other owners have gone.
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

/// Events of one device, made when none is free: none in the steady state. Thread-safe; shared with its events, which
/// may be the last to go.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(int device, bool timed = false) : device_(device), timed_(timed) {}
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
  [[nodiscard]] int device() const { return device_; }
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
