// SPDX-License-Identifier: Apache-2.0
// The CUDA devices of this machine.
#pragma once

#include <deque>
#include <vector>

#include "runtime/device/backend.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/cuda/memory_sharing.hpp"
#include "runtime/device/cuda/peer_access.hpp"

namespace maestro::cuda {

class CudaBackend final : public DeviceBackend {
 public:
  /// Throws JobError(unavailable), "no device: ..." with the runtime's words, if there is none.
  explicit CudaBackend(TableMaker make_table);
  [[nodiscard]] std::size_t devices() const override { return texts_.size(); }
  [[nodiscard]] std::string describe(std::size_t index) const override;
  [[nodiscard]] std::size_t used_bytes(std::size_t index) const override;
  [[nodiscard]] std::size_t memory_bytes(std::size_t index) const override;
  [[nodiscard]] std::unique_ptr<Device> open(const DeviceOptions& options) const override;
  [[nodiscard]] std::vector<std::byte> make_group_id() const override;
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device, const GroupRank& rank) const override;
  [[nodiscard]] std::vector<std::byte> export_memory(Device& device, const std::byte* block) const override;
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_memory(Device& device, std::span<const std::byte> exported,
                                                              std::string& why_not) const override;

 private:
  TableMaker make_table_;
  std::vector<std::string> texts_;  // by device
  mutable std::deque<DeviceParts> parts_;
  mutable PeerAccess peers_;
  MemorySharing sharing_;
  mutable Poller poller_;
};

}  // namespace maestro::cuda
