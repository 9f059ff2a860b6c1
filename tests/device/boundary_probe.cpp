// SPDX-License-Identifier: Apache-2.0
// A backend library without CUDA: backend_test.cpp checks its exceptions and results from the program's side.
#include "runtime/core/result.hpp"
#include "runtime/device/backend.hpp"

namespace maestro {
namespace {

class ProbeDevice final : public Device {
 public:
  explicit ProbeDevice(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { throw JobError("a probe has no operators"); }
  void submit(Priority /*priority*/, std::function<void()> work) override { work(); }
  void stop() override {}

 private:
  std::string name_;
};

class ProbeBackend final : public DeviceBackend {
 public:
  [[nodiscard]] std::size_t devices() const override { return 1; }
  [[nodiscard]] std::string describe(std::size_t index) const override {
    throw JobError("there is no probe:" + std::to_string(index), ErrorCode::unavailable);
  }
  [[nodiscard]] std::size_t used_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::size_t memory_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    return std::make_unique<ProbeDevice>(options.name);
  }
  [[nodiscard]] std::vector<std::byte> make_group_id() const override { throw CommunicatorAborted("by the probe"); }
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device, const GroupRank& /*rank*/) const override {
    if (dynamic_cast<ProbeDevice*>(&device) == nullptr) throw std::logic_error("not the probe's own device");
    throw JobError("a probe joins no group");
  }
  [[nodiscard]] std::vector<std::byte> export_memory(Device& /*device*/, const std::byte* /*block*/) const override {
    return {};
  }
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_memory(Device& /*device*/, std::span<const std::byte> exported,
                                                              std::string& why_not) const override {
    why_not = "a probe reaches none of " + std::to_string(exported.size()) + " bytes";
    return nullptr;
  }
};

}  // namespace
}  // namespace maestro

extern "C" __attribute__((visibility("default"))) void maestro_cuda_backend(const char* interface,
                                                                            maestro::CudaStatus* status) {
  static const maestro::ProbeBackend backend;
  if (std::string(interface) == MAESTRO_CUDA_INTERFACE) status->backend = &backend;
}
