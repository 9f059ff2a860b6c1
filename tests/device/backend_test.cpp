// SPDX-License-Identifier: Apache-2.0
// The search for a driver and for the backend's library, on machines with and without them.
#include "runtime/device/backend.hpp"

#include <gtest/gtest.h>

#include <string>

#include "runtime/core/result.hpp"
#include "runtime/device/cuda_driver.hpp"

namespace maestro {
namespace {

constexpr int toolkit = 13;

CudaDriver driver_of(int version, std::vector<int> capabilities) {
  CudaDriver driver;
  driver.found = true;
  driver.version = version;
  driver.capabilities = std::move(capabilities);
  return driver;
}

TEST(CudaDriver, a_machine_without_one_is_told_what_cannot_be_opened) {
  EXPECT_EQ(refusal_of(CudaDriver(), toolkit), "no NVIDIA driver: libcuda.so.1 cannot be opened");
}

TEST(CudaDriver, one_that_is_older_than_the_toolkit_is_refused_with_its_release) {
  CudaDriver driver = driver_of(11040, {90});
  EXPECT_EQ(refusal_of(driver, toolkit), "the driver supports CUDA 11.4 and is older than CUDA 13 needs");
  driver.release = "470.82.01";
  EXPECT_EQ(refusal_of(driver, toolkit), "the driver 470.82.01 supports CUDA 11.4 and is older than CUDA 13 needs");
  EXPECT_EQ(refusal_of(driver, 11), "");
}

TEST(CudaDriver, one_that_does_not_start_is_quoted) {
  CudaDriver driver = driver_of(13000, {});
  driver.start = 803;
  driver.start_text = "system has unsupported display driver / cuda driver combination";
  EXPECT_EQ(refusal_of(driver, toolkit), "the NVIDIA driver does not start: error 803, " + driver.start_text);
}

TEST(CudaDriver, no_device_is_said_whether_the_driver_fails_for_it_or_counts_none) {
  CudaDriver driver = driver_of(13000, {});
  EXPECT_EQ(refusal_of(driver, toolkit), "no device: the NVIDIA driver finds none");
  driver.start = 100;
  EXPECT_EQ(refusal_of(driver, toolkit), "no device: the NVIDIA driver finds none");
}

TEST(CudaDriver, devices_are_refused_when_all_are_too_old) {
  EXPECT_EQ(refusal_of(driver_of(13000, {70, 75}), toolkit),
            "the device is of compute capability 7.5; 8.0 or newer is needed");
  EXPECT_EQ(refusal_of(driver_of(13000, {75, 80}), toolkit), "");
  EXPECT_EQ(refusal_of(driver_of(13010, {100}), toolkit), "");
}

TEST(DeviceBackend, a_file_that_is_no_backend_is_refused_by_name) {
  const CudaStatus none = load_cuda_library("/nowhere/libmaestro_cuda.so");
  EXPECT_EQ(none.backend, nullptr);
  EXPECT_NE(none.missing.find("/nowhere/libmaestro_cuda.so"), std::string::npos) << none.missing;
  const CudaStatus other = load_cuda_library("libm.so.6");
  EXPECT_EQ(other.backend, nullptr);
  EXPECT_EQ(other.missing, "libm.so.6 is not a CUDA backend of this program");
}

TEST(DeviceBackend, there_is_a_backend_or_one_line_that_says_what_is_missing) {  // DB-1
  const CudaStatus& status = cuda_status();
  EXPECT_EQ(status.backend == nullptr, !status.missing.empty());
  EXPECT_EQ(status.missing.find('\n'), std::string::npos);
  EXPECT_EQ(status.devices() > 0, status.backend != nullptr);
  EXPECT_EQ(&cuda_status(), &status);
}

TEST(DeviceBackend, errors_and_interfaces_cross_the_boundary_of_the_library) {  // DB-2
  const CudaStatus status = load_cuda_library(MAESTRO_BOUNDARY_PROBE);
  ASSERT_NE(status.backend, nullptr) << status.missing;
  EXPECT_EQ(status.devices(), 1u);
  try {
    (void)status.backend->describe(7);
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_STREQ(error.what(), "there is no probe:7");
  }
  EXPECT_THROW((void)status.backend->make_group_id(), CommunicatorAborted);
  DeviceOptions options;
  options.name = "probe:0";
  const std::unique_ptr<Device> device = status.backend->open(options);
  EXPECT_EQ(device->name(), "probe:0");
  EXPECT_EQ(dynamic_cast<Communicator*>(device.get()), nullptr);
  EXPECT_THROW((void)status.backend->join(*device, {}), JobError);  // the library's dynamic_cast recognises its device
}

}  // namespace
}  // namespace maestro
