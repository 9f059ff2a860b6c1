// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda_driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>

namespace maestro {

namespace {

// Constants of the driver interface, which never change (cuda.h).
constexpr int success = 0;
constexpr int error_no_device = 100;
constexpr int attribute_capability_major = 75;
constexpr int attribute_capability_minor = 76;
constexpr int least_capability = 80;  // bf16 matrix instructions

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// A function of the driver, called with the arguments of its header.
template <class... Arguments>
int call(void* library, const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  constexpr int no_such_function = -1;
  return function == nullptr ? no_such_function : function(arguments...);
}

int capability_of(void* library, int device) {
  int handle = 0;
  int major = 0;
  int minor = 0;
  if (call(library, "cuDeviceGet", &handle, device) != success) return 0;
  if (call(library, "cuDeviceGetAttribute", &major, attribute_capability_major, handle) != success) return 0;
  if (call(library, "cuDeviceGetAttribute", &minor, attribute_capability_minor, handle) != success) return 0;
  return 10 * major + minor;
}

}  // namespace

std::string cuda_driver_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  return release;
}

CudaDriver find_cuda_driver() {
  CudaDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open: the backend uses it until the end
  if (library == nullptr) return driver;
  driver.found = true;
  driver.release = cuda_driver_release();
  static_cast<void>(call(library, "cuDriverGetVersion", &driver.version));  // 0 without that function
  driver.start = call(library, "cuInit", 0U);
  if (driver.start != success) {
    const char* text = nullptr;
    if (call(library, "cuGetErrorString", driver.start, &text) == success && text != nullptr) driver.start_text = text;
    return driver;
  }
  int devices = 0;
  if (call(library, "cuDeviceGetCount", &devices) != success) return driver;
  for (int device = 0; device < devices; ++device) driver.capabilities.push_back(capability_of(library, device));
  return driver;
}

std::string refusal_of(const CudaDriver& driver, int toolkit) {
  if (!driver.found) return "no NVIDIA driver: libcuda.so.1 cannot be opened";
  if (driver.version < 1000 * toolkit) {
    const std::string release = driver.release.empty() ? "" : " " + driver.release;
    return "the driver" + release + " supports CUDA " + version_text(driver.version) + " and is older than CUDA " +
           std::to_string(toolkit) + " needs";
  }
  if (driver.start != success && driver.start != error_no_device) {
    return "the NVIDIA driver does not start: error " + std::to_string(driver.start) +
           (driver.start_text.empty() ? "" : ", " + driver.start_text);
  }
  if (driver.capabilities.empty()) return "no device: the NVIDIA driver finds none";
  const int best = *std::ranges::max_element(driver.capabilities);
  if (best < least_capability) {
    return "the device is of compute capability " + capability_text(best) + "; " + capability_text(least_capability) +
           " or newer is needed";
  }
  return {};
}

}  // namespace maestro
