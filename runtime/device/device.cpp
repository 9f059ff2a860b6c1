#include "runtime/device/device.hpp"

#include <vector>

namespace maestro {

namespace {

/// For devices whose work is done when a call returns.
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

}  // namespace maestro
