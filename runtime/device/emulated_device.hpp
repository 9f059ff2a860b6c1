// SPDX-License-Identifier: Apache-2.0
// Devices whose arithmetic is a timed wait. Actors, work items, credits and transfers are real, so that the runtime
// itself can be observed and measured with hundreds of devices on a single machine.
//
// ED-1 (one at a time): a device never runs two pieces of work at once, and runs them in the order of submission within
// a priority,
//       critical work first.
// ED-2 (no drift): waiting work begins when the work before it was due to end, not when a thread found the time: delays
//       of this machine do not add up.
// ED-3 (stop): after stop() of a device none of its work runs.
// ED-4 (short work): work that is due sooner than the resolution of a timer (`timer_resolution`) ends at once, in the
//       thread that finds that; the device owes the time to the work after it: short work costs no thread switch, and
//       sums of times hold.
// ED-5 (joint work): work of several devices begins when the last of them is free, and occupies each of them until it
//       ends. Every device has the joint work in the same order and ahead of background work, so that devices never
//       wait for each other in a circle.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/device.hpp"

namespace maestro {

/// A thread that calls back at given times, for any number of devices. Thread-safe.
class EmulatedClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  EmulatedClock();
  /// Called on any thread, even the clock's: a call may hold the last reference to the clock.
  ~EmulatedClock();
  EmulatedClock(const EmulatedClock&) = delete;
  EmulatedClock& operator=(const EmulatedClock&) = delete;
  /// Calls with equal times run in the order of their requests. Dropped after stop().
  void call_at(Time time, std::function<void()> call);
  void stop();

 private:
  struct Call {
    Time time;
    std::uint64_t number = 0;
    std::function<void()> run;
    bool operator>(const Call& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  struct Schedule {  // outlives a clock that one of its calls releases
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<Call> calls;  // a heap: the earliest in front
    std::uint64_t next_number = 0;
    bool stopping = false;
  };
  static void run(Schedule& schedule);

  std::shared_ptr<Schedule> schedule_ = std::make_shared<Schedule>();
  std::thread thread_;  // last: starts when everything above exists
};

class EmulatedDevice final : public Device {
  struct State;

 public:
  /// Lateness of a sleeping thread's wake-up on Linux (timerslack_ns of prctl(2)).
  static constexpr std::chrono::microseconds timer_resolution{50};

  EmulatedDevice(std::string name, const OperatorTable& ops, std::shared_ptr<EmulatedClock> clock);
  ~EmulatedDevice() override { stop(); }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { return *ops_; }
  /// Queues work that takes no time.
  void submit(Priority priority, std::function<void()> work) override {
    submit_lasting(std::chrono::nanoseconds(0), priority, std::move(work));
  }
  /// Runs `work` on the clock's thread when the device has been busy with it for `lasts`, or in the calling thread if
  /// that is due now (ED-4); it must be short.
  void submit_lasting(std::chrono::nanoseconds lasts, Priority priority, std::function<void()> work) override {
    enqueue(priority, {lasts, std::move(work), nullptr});
  }
  /// Queues joint work, which ends on all devices at once (ED-5); each then runs its `work`.
  void submit_joint(const std::shared_ptr<JointWork>& joint, std::chrono::nanoseconds lasts,
                    std::function<void()> work) override {
    enqueue(Priority::critical, {lasts, std::move(work), joint});
  }
  void stop() override;

 private:
  friend class JointWork;
  struct Work {
    std::chrono::nanoseconds lasts;
    std::function<void()> run;
    std::shared_ptr<JointWork> joint;  // held by the work on each device
  };
  /// A device's call at the end of its work.
  struct Part {
    std::shared_ptr<State> state;
    std::function<void()> run;
  };
  struct Free {
    std::shared_ptr<State> state;
    EmulatedClock::Time from;
  };
  struct State {  // outlives the device while a call is under way
    std::mutex mutex;
    std::deque<Work> critical;
    std::deque<Work> background;
    bool busy = false;
    bool stopped = false;
    EmulatedClock::Time free_from;  // end of its work
  };
  void enqueue(Priority priority, Work work);
  /// Takes the next work, if any; else the device is free from then on.
  static std::optional<Work> take(State& state, EmulatedClock::Time from);
  /// Begins the next work on devices that are free, until they wait for the clock or for other devices.
  static void begin(std::vector<Free> free, const std::shared_ptr<EmulatedClock>& clock);
  /// Runs the parts of devices that have not stopped; these are free from `end` on.
  static void run(const std::vector<Part>& parts, EmulatedClock::Time end, std::vector<Free>& free);
  static void end_at(EmulatedClock::Time end, std::vector<Part> parts, const std::shared_ptr<EmulatedClock>& clock);

  std::string name_;
  const OperatorTable* ops_;
  std::shared_ptr<EmulatedClock> clock_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Work that several emulated devices do together (ED-5), to be queued once on each of them. Thread-safe.
class JointWork {
 public:
  explicit JointWork(std::size_t devices) : missing_(devices) {}

 private:
  friend class EmulatedDevice;
  struct Begun {
    std::vector<EmulatedDevice::Part> parts;
    EmulatedClock::Time from;
  };
  /// Records that a device is free for its part from `from` on. Returns the work if this is the last device.
  std::optional<Begun> arrived(EmulatedDevice::Part part, EmulatedClock::Time from);

  std::mutex mutex_;
  std::size_t missing_;  // devices that are busy with other work
  Begun begun_;
};

}  // namespace maestro
