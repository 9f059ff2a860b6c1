// SPDX-License-Identifier: Apache-2.0
// Forms groups of ranks over devices with device memory, and runs calls on device threads that a caller waits for.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro {

/// Runs `call` on the device's thread; an exception is stored in the future. The device outlives the call.
[[nodiscard]] std::future<void> call_on(Device& device, std::function<void()> call);

/// Creates a group of `devices` with the same backend and returns its communicators by rank, each created on its
/// device's thread; waits for all of them. `end` is GroupRank::abort of each; a failing device triggers it, so that the
/// others do not wait. Throws the exception of the first failing device.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> join_devices(const DeviceBackend& backend,
                                                                      std::span<Device* const> devices,
                                                                      const std::shared_ptr<AbortReason>& end);

}  // namespace maestro
