// SPDX-License-Identifier: Apache-2.0
// Groups of ranks over devices that have memory of their own, and work on the threads of devices that is waited for.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro {

/// Runs `call` on the device's thread; what it throws is in the future. The device outlives the call.
[[nodiscard]] std::future<void> call_on(Device& device, std::function<void()> call);

/// The communicators of a new group of `devices` of one backend, by rank, each made on its device's thread: waits for
/// all of them. `end` is GroupRank::abort of each; a device that fails gives it, so that no other waits. Throws what
/// the first that failed has thrown.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> join_devices(const DeviceBackend& backend,
                                                                      std::span<Device* const> devices,
                                                                      const std::shared_ptr<AbortReason>& end);

}  // namespace maestro
