// A device runs work in order on a thread of its own. Sections that share a device share its thread; work of a higher
// priority goes first, so a trained section never waits behind a frozen one that runs ahead.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/ops/operator_table.hpp"

namespace maestro {

enum class Priority : std::uint8_t { critical, background };

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const OperatorTable& ops() const = 0;
  /// Queues work; returns at once. Thread-safe. Work of one priority runs in the order of submission, and what it
  /// throws ends the program: callers catch inside. Work queued after stop() is dropped.
  virtual void submit(Priority priority, std::function<void()> work) = 0;
  /// As submit(), of work that takes `lasts` on an emulated device; other devices take as long as they take.
  virtual void submit_lasting(std::chrono::nanoseconds /*lasts*/, Priority priority, std::function<void()> work) {
    submit(priority, std::move(work));
  }
  /// Finishes what runs, drops what is queued, ends the thread. Idempotent.
  virtual void stop() = 0;
};

}  // namespace maestro
