// SPDX-License-Identifier: Apache-2.0
// The built libmaestro_cuda.so: it loads on any machine, and reports a missing device.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "runtime/device/backend.hpp"
#include "runtime/device/cuda_driver.hpp"

namespace maestro {
namespace {

TEST(CudaLibrary, it_loads_and_counts_devices_or_says_that_there_is_none) {
  const CudaStatus status = load_cuda_library(MAESTRO_CUDA_LIBRARY_FILE);
  if (find_cuda_driver().capabilities.empty()) {
    EXPECT_EQ(status.backend, nullptr);
    EXPECT_EQ(status.missing.substr(0, 11), "no device: ") << status.missing;
    return;
  }
  ASSERT_NE(status.backend, nullptr) << status.missing;
  for (std::size_t index = 0; index < status.devices(); ++index) {
    EXPECT_NE(status.backend->describe(index).find("multiprocessors"), std::string::npos);
  }
}

TEST(CudaLibrary, one_of_another_build_is_refused) {  // DB-2
  void* library = dlopen(MAESTRO_CUDA_LIBRARY_FILE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  CudaStatus status;
  reinterpret_cast<CudaEntry>(dlsym(library, cuda_entry_name))("another interface", &status);
  EXPECT_EQ(status.backend, nullptr);
  EXPECT_EQ(status.missing, "libmaestro_cuda.so is of another build than the program");
}

}  // namespace
}  // namespace maestro
