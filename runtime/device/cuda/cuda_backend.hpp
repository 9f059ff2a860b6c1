// The CUDA devices of this machine.
#pragma once

#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro::cuda {

class CudaBackend final : public DeviceBackend {
 public:
  /// Throws JobError(unavailable), "no device: ..." with the runtime's words, where there is none.
  CudaBackend();
  [[nodiscard]] std::size_t devices() const override { return texts_.size(); }
  [[nodiscard]] std::string describe(std::size_t index) const override;
  [[nodiscard]] std::unique_ptr<Device> open(const DeviceOptions& options) const override;
  [[nodiscard]] std::vector<std::byte> make_group_id() const override;
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device, const GroupRank& rank) const override;

 private:
  std::vector<std::string> texts_;  // by device
};

}  // namespace maestro::cuda
