// Linked into test programs that need a device: without one all their tests are skipped, before any is made.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace maestro::cuda {
namespace {

class DeviceNeeded : public ::testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t result = cudaGetDeviceCount(&devices);
    if (result == cudaSuccess && devices > 0) return;
    // CTest looks for the first word; GoogleTest does not write it for a whole program.
    GTEST_SKIP() << "[  SKIPPED ] no CUDA device: " << cudaGetErrorString(result) << "\n";
  }
};

// GoogleTest owns it.
[[maybe_unused]] const auto* const device_needed = ::testing::AddGlobalTestEnvironment(new DeviceNeeded);

}  // namespace
}  // namespace maestro::cuda
