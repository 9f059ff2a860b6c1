// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device.hpp"

#include <cstring>
#include <future>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

/// Timer for devices whose work is complete when a call returns.
class HostTimer final : public WorkTimer {
 public:
  void mark() override { marks_.push_back(std::chrono::steady_clock::now()); }
  [[nodiscard]] double milliseconds(std::size_t from, std::size_t to) const override {
    return std::chrono::duration<double, std::milli>(marks_.at(to) - marks_.at(from)).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<WorkTimer> Device::timer() {
  return std::make_unique<HostTimer>();
}

void Device::move(const std::byte* from, std::byte* to, std::size_t bytes,
                  std::function<void(const std::string& failure)> done) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  done({});
}

void complete(Device& device) {
  const auto done = std::make_shared<std::promise<std::string>>();
  device.finish([done](const std::string& failure) { done->set_value(failure); });
  if (const std::string failure = done->get_future().get(); !failure.empty()) throw JobError(failure);
}

}  // namespace maestro
