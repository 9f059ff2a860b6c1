// SPDX-License-Identifier: Apache-2.0
// A device runs work in order on its thread. Sections that share a device share its thread. Work with a higher priority
// goes first, so a trained section never waits for a frozen section that runs ahead.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/ops/operator_table.hpp"

namespace maestro {

enum class Priority : std::uint8_t { critical, background };

/// Times of marks in a device's work, in order, for figures of passes.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  /// Records a timestamp after all submitted work. Device thread only.
  virtual void mark() = 0;
  /// Returns the time from mark `from` to mark `to`, once the work before `to` is complete.
  [[nodiscard]] virtual double milliseconds(std::size_t from, std::size_t to) const = 0;
};

class JointWork;

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const OperatorTable& ops() const = 0;
  /// Queues work; returns at once. Thread-safe. Work of equal priority runs in the order of submission. An exception
  /// from it ends the program: callers catch inside. Work queued after stop() is dropped.
  virtual void submit(Priority priority, std::function<void()> work) = 0;
  /// Queues work that takes `lasts` on an emulated device, and as long as it takes on others.
  virtual void submit_lasting(std::chrono::nanoseconds /*lasts*/, Priority priority, std::function<void()> work) {
    submit(priority, std::move(work));
  }
  /// Queues critical work that the devices of `joint` do together, like submit_lasting(). The caller queues it on all
  /// these devices in a row, under a lock that it holds for every joint work: the order is the same on all devices. On
  /// devices that are not emulated, the work itself waits for the others in its collectives.
  virtual void submit_joint(const std::shared_ptr<JointWork>& /*joint*/, std::chrono::nanoseconds lasts,
                            std::function<void()> work) {
    submit_lasting(lasts, Priority::critical, std::move(work));
  }
  /// Called on the device's thread: calls `done`, on any thread and once, when all work that the operators have
  /// received so far is complete; in the order of these calls. `failure` is empty, or a line that names the failure.
  /// `done` must only enqueue. On a CPU work is complete when the operators return, and `done` is called at once.
  virtual void finish(std::function<void(const std::string& failure)> done) { done({}); }
  [[nodiscard]] virtual std::unique_ptr<WorkTimer> timer();
  /// Returns the peak use of the device's memory in bytes; 0: it uses the host's memory. Any thread.
  [[nodiscard]] virtual std::size_t peak_bytes() const { return 0; }
  /// Copies between memory that the device reaches: its memory, imported memory (DeviceBackend::import_memory), or
  /// pinned host memory. Runs concurrently with the device's work, without order: the source is complete, and no other
  /// thread touches the target. Returns at once; later calls `done` as in finish(), in the order of these calls. Any
  /// thread.
  virtual void move(const std::byte* from, std::byte* to, std::size_t bytes,
                    std::function<void(const std::string& failure)> done);
  /// Finishes the running work, drops the queue, ends the thread. Idempotent.
  virtual void stop() = 0;
};

/// Waits, on the device's thread, until all work that its operators have received is complete. Throws JobError with the
/// failure.
void complete(Device& device);

}  // namespace maestro
