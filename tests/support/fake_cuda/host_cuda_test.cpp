// SPDX-License-Identifier: Apache-2.0
// The order of operations in the fake CUDA runtime. Invariants: host_cuda.hpp.
#include "tests/support/fake_cuda/host_cuda.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {
namespace {

__global__ void add_one(float* value) {
  value[threadIdx.x] += 1;
}
__global__ void broken(float* value) {
  if (threadIdx.x == 0) __syncthreads();
  value[0] = 1;
}
__global__ void fill_shared(float* value) {
  shared_memory<float>()[threadIdx.x] = 1;
  value[0] = shared_memory<float>()[threadIdx.x];
}

/// Uses 32 floats of static shared memory in addition to dynamic memory.
__global__ void fill_both() {
  MAESTRO_SHARED(float, variable, 32);
  variable[threadIdx.x] = shared_memory<float>()[threadIdx.x] = 1;
}

class HostCuda : public ::testing::Test {
 protected:
  HostCuda() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), "stream");
    check(cudaMalloc(reinterpret_cast<void**>(&device_), 32 * sizeof(float)), "memory");
  }
  ~HostCuda() override {
    fake_cuda::reset_device();
    cudaFree(device_);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
  }
  void add(cudaStream_t stream) const { launch({"add_one", 1, 32, 0, stream}, add_one, device_); }
  /// Requests no shared memory, unlike launch().
  void put_fill_both(std::size_t shared_bytes) const {
    fake_cuda::enqueue_kernel({"fill_both", 1, 32, shared_bytes, fill_both}, reinterpret_cast<const void*>(&fill_both),
                              stream_);
  }
  float read() const {
    float value = 0;
    check(cudaMemcpy(&value, device_, sizeof value, cudaMemcpyDeviceToHost), "read");
    return value;
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  float* device_ = nullptr;
};

TEST_F(HostCuda, does_the_work_of_a_stream_in_order_and_only_when_asked_HR_1) {
  check(cudaMemsetAsync(device_, 0, 32 * sizeof(float), stream_), "set");
  add(stream_);
  add(stream_);
  EXPECT_EQ(fake_cuda::pending_steps(stream_), 3U);
  EXPECT_TRUE(std::isnan(read()));  // the default stream does not wait for a non-blocking stream
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(read(), 1.0F);
  check(cudaStreamSynchronize(stream_), "wait");
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(read(), 2.0F);
}

TEST_F(HostCuda, reads_the_source_of_a_copy_when_its_step_runs_HR_2) {
  float source = 1;
  check(cudaMemcpyAsync(device_, &source, sizeof source, cudaMemcpyHostToDevice, stream_), "copy");
  source = 2;
  check(cudaStreamSynchronize(stream_), "wait");
  EXPECT_EQ(read(), 2.0F);
}

TEST_F(HostCuda, lets_a_stream_wait_for_an_event_of_another) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);  // never recorded
  add(other_);
  check(cudaMemsetAsync(device_, 0, 32 * sizeof(float), stream_), "set");
  check(cudaEventRecord(event, stream_), "record");
  check(cudaStreamSynchronize(other_), "wait");
  check(cudaStreamWaitEvent(other_, event, 0), "wait for event");
  add(other_);
  check(cudaStreamSynchronize(other_), "wait");
  EXPECT_EQ(read(), 1.0F);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  check(cudaEventDestroy(event), "destroy");
}

TEST_F(HostCuda, calls_host_functions_in_the_order_of_the_stream) {
  std::vector<int> order;
  const auto note = [](void* to) { static_cast<std::vector<int>*>(to)->push_back(1); };
  check(cudaLaunchHostFunc(stream_, note, &order), "call");
  fake_cuda::enqueue_step([&order] { order.push_back(2); }, stream_);
  EXPECT_TRUE(order.empty());
  check(cudaDeviceSynchronize(), "wait");
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(HostCuda, keeps_the_first_failure_and_names_the_kernel_HR_4) {
  launch({"broken", 1, 32, 0, stream_}, broken, device_);
  add(stream_);
  const cudaError_t result = cudaStreamSynchronize(stream_);
  EXPECT_EQ(result, cudaErrorLaunchFailure);
  EXPECT_THAT(cudaGetErrorString(result), ::testing::HasSubstr("kernel broken"));
  EXPECT_EQ(cudaMemsetAsync(device_, 0, 4, stream_), cudaErrorLaunchFailure);
  EXPECT_THROW(add(stream_), DeviceError);
  fake_cuda::reset_device();
  EXPECT_NO_THROW(add(stream_));
}

TEST_F(HostCuda, refuses_launches_outside_of_the_limits_KD_4) {
  EXPECT_THROW(launch({"add_one", 1, 1025, 0, stream_}, add_one, device_), DeviceError);
  fake_cuda::reset_device();
  EXPECT_THROW(launch({"add_one", 0, 32, 0, stream_}, add_one, device_), DeviceError);
  fake_cuda::reset_device();
  EXPECT_THROW(launch({"add_one", 1, 32, 228 * 1024, stream_}, add_one, device_), DeviceError);
  EXPECT_NO_THROW(launch({"fill_shared", 1, 32, 100 * 1024, stream_}, fill_shared, device_));
}

TEST_F(HostCuda, fails_a_kernel_whose_static_and_dynamic_shared_memory_are_more_than_it_has_asked_for_KD_4) {
  constexpr std::size_t all = fake_cuda::shared_bytes_without_asking;
  constexpr std::size_t beside = 32 * sizeof(float);
  put_fill_both(all - beside);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  put_fill_both(all);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  fake_cuda::reset_device();
  const auto* function = reinterpret_cast<const void*>(&fill_both);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(all)), "asking");
  put_fill_both(all);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(HostCuda, replays_a_captured_graph) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaMemsetAsync(device_, 0, 32 * sizeof(float), stream_), "set");
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
  add(stream_);
  EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);  // not allowed while capturing
  check(cudaStreamEndCapture(stream_, &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(executable, stream_), "replay");
  check(cudaStreamSynchronize(stream_), "wait");
  EXPECT_EQ(read(), 3.0F);
  check(cudaGraphExecDestroy(executable), "destroy");
  check(cudaGraphDestroy(graph), "destroy");
}

TEST_F(HostCuda, refuses_copies_that_leave_device_memory) {
  float host[64] = {};
  EXPECT_EQ(cudaMemcpyAsync(device_, host, sizeof host, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, host, sizeof host, cudaMemcpyDeviceToHost, stream_), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace maestro::cuda
