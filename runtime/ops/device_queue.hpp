// SPDX-License-Identifier: Apache-2.0
// The queue of a CUDA device's work, for other libraries that compute on the tensors of its operator table.
//
// OQ-1 (order of calls): work that a library queues on stream() follows every call that the table has received before
//       stream() returned, and precedes every later call, also in a pass that collects its calls (RT-2).
#pragma once

#include "runtime/ops/operator_table.hpp"

namespace maestro {

/// An interface of operator tables. Belongs to the device's thread, or to another thread while no work is queued.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  /// Returns K of cuda:K: the device's number for every library in this process.
  [[nodiscard]] virtual int device() const = 0;
  /// Returns the cudaStream_t, which stays the same; call it again before each piece of work (OQ-1).
  [[nodiscard]] virtual void* stream() const = 0;
  /// Waits until the device has done the queued work. Throws std::runtime_error if the device has failed.
  virtual void wait() const = 0;
  /// Makes the device current for the calling thread, after a library that may have chosen another. If that fails,
  /// later calls report it.
  virtual void make_current() const noexcept = 0;
};

/// Returns the queue of a table's device; null: the table has none.
[[nodiscard]] inline const DeviceQueue* queue_of(const OperatorTable& table) {
  return dynamic_cast<const DeviceQueue*>(&table);
}

}  // namespace maestro
