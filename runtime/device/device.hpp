// SPDX-License-Identifier: Apache-2.0
// A device runs work in order on a thread of its own. Sections that share a device share its thread; work of a higher
// priority goes first, so a trained section never waits behind a frozen one that runs ahead.
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

/// Times of marks in the order of a device's work, for figures of passes.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  /// Behind the work that was given so far. On the device's thread.
  virtual void mark() = 0;
  /// From mark `from` to mark `to`, once the work up to that is complete.
  [[nodiscard]] virtual double milliseconds(std::size_t from, std::size_t to) const = 0;
};

class JointWork;

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const OperatorTable& ops() const = 0;
  /// Queues work; returns at once. Thread-safe. Work of equal priority runs in the order of submission, and an
  /// exception out of it ends the program: callers catch inside. Work queued after stop() is dropped.
  virtual void submit(Priority priority, std::function<void()> work) = 0;
  /// As submit(), of work that takes `lasts` on an emulated device; other devices take as long as they take.
  virtual void submit_lasting(std::chrono::nanoseconds /*lasts*/, Priority priority, std::function<void()> work) {
    submit(priority, std::move(work));
  }
  /// As submit_lasting(), of critical work that the devices of `joint` do together. The caller queues it on all of them
  /// in a row, under a lock that it holds for every joint work: the order is the same on all devices. On other than
  /// emulated devices the work itself waits for that of the others, in its collectives.
  virtual void submit_joint(const std::shared_ptr<JointWork>& /*joint*/, std::chrono::nanoseconds lasts,
                            std::function<void()> work) {
    submit_lasting(lasts, Priority::critical, std::move(work));
  }
  /// Called on the device's thread: calls `done`, on any thread and once, when all work that the operators have
  /// received so far is complete; in the order of these calls. `failure` is empty, or a line that names the failure.
  /// `done` must only enqueue. On a CPU work is complete when the operators return, and `done` is called at once.
  virtual void finish(std::function<void(const std::string& failure)> done) { done({}); }
  [[nodiscard]] virtual std::unique_ptr<WorkTimer> timer();
  /// Returns the most bytes of the device's own memory in use at a time; 0: its memory is the host's. Any thread.
  [[nodiscard]] virtual std::size_t peak_bytes() const { return 0; }
  /// Copies between memory that the device reaches: its own, imported (DeviceBackend::import_memory), or pinned host
  /// memory. Runs beside the device's work and is not ordered with it: the source is complete, and no other thread
  /// touches the target. Returns at once; then `done` as in finish(), in the order of these calls. Any thread.
  virtual void move(const std::byte* from, std::byte* to, std::size_t bytes,
                    std::function<void(const std::string& failure)> done);
  /// Finishes the running work, drops the queue, ends the thread. Idempotent.
  virtual void stop() = 0;
};

/// Waits, on the device's thread, until all work that its operators have received is complete. Throws JobError with the
/// failure.
void complete(Device& device);

}  // namespace maestro
