// SPDX-License-Identifier: Apache-2.0
#include "actors/services/device_groups.hpp"

#include <exception>
#include <utility>

namespace maestro {

std::future<void> call_on(Device& device, std::function<void()> call) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> future = done->get_future();
  device.submit(Priority::critical, [call = std::move(call), done = std::move(done)] {
    try {
      call();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  return future;
}

std::vector<std::unique_ptr<Communicator>> join_devices(const DeviceBackend& backend, std::span<Device* const> devices,
                                                        const std::shared_ptr<AbortReason>& end) {
  GroupRank member;
  member.id = backend.make_group_id();
  member.size = std::ssize(devices);
  member.abort = end;
  std::vector<std::unique_ptr<Communicator>> group(devices.size());
  std::vector<std::future<void>> joined;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    member.rank = static_cast<std::int64_t>(rank);
    joined.push_back(call_on(*devices[rank], [&backend, &device = *devices[rank], &made = group[rank], member] {
      try {
        made = backend.join(device, member);
      } catch (const std::exception& failed) {
        member.abort->set(failed.what());
        throw;
      }
    }));
  }
  std::exception_ptr first, other;
  for (std::future<void>& each : joined) {
    try {
      each.get();
    } catch (const CommunicatorAborted&) {
      other = std::current_exception();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first == nullptr) first = other;
  if (first != nullptr) std::rethrow_exception(first);
  return group;
}

}  // namespace maestro
