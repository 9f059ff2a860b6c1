// SPDX-License-Identifier: Apache-2.0
// A fixture for tests of device kernels: tensors are copied to and from the device only through calls of the CUDA
// runtime, so that the same tests run on a device and with the fake.
//
// With the fake every run() runs twice, with threads and blocks in forward and backward order, and must leave the same
// bits in all memory: a difference is a race.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/kernels.hpp"
#include "tests/ops/owned_tensor.hpp"
#if defined(MAESTRO_FAKE_CUDA)
#include "tests/support/fake_cuda/kernel_run.hpp"
#endif

namespace maestro::cuda {

using testing::OwnedTensor;
using testing::Values;

inline constexpr std::int64_t odd_columns[] = {1, 7, 64, 65, 768, 1023};
inline constexpr std::int64_t odd_rows[] = {0, 1, 5, 33};
inline constexpr DType both_types[] = {DType::f32, DType::bf16};

class KernelTest : public ::testing::Test {
 protected:
  KernelTest() {
    int devices = 0;
    available_ = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    if (!available_) return;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "properties");
    at_ = {stream_, properties.multiProcessorCount, &workspace_};
  }
  ~KernelTest() override {
    for (const Tensor& tensor : tensors_) cudaFree(tensor.raw());
    if (available_) cudaStreamDestroy(stream_);
  }
  void SetUp() override {
    if (!available_) GTEST_SKIP() << "no CUDA device";
  }

  /// Returns device memory, NaN with the fake, until the end of the test; `offset` elements after an aligned address.
  Tensor empty(DType dtype, Shape shape, std::int64_t offset = 0) {
    if (!available_) return {};  // called by a member of a skipped test
    void* memory = nullptr;
    const Tensor whole(nullptr, dtype, shape);
    const std::size_t skip = static_cast<std::size_t>(offset) * size_of(dtype);
    const std::size_t size = std::max<std::size_t>(whole.bytes() + skip, 1);
    check(cudaMalloc(&memory, size), "memory");
    const auto bytes = static_cast<std::int64_t>(size);
    tensors_.emplace_back(memory, DType::u8, Shape{bytes});
    return {static_cast<std::byte*>(memory) + skip, dtype, shape};
  }
  Tensor upload(const Tensor& host, std::int64_t offset = 0) {
    const Tensor device = empty(host.dtype(), host.shape(), offset);
    write(device, host.raw());
    return device;
  }
  /// Returns random values; the tensor on the host serves references.
  OwnedTensor random(DType dtype, Shape shape, double deviation = 1) {
    OwnedTensor tensor(dtype, shape);
    tensor.fill(testing::exact_normals(generator_, tensor.tensor().elements(), deviation));
    return tensor;
  }
  OwnedTensor random_ids(std::int64_t count, std::int64_t first, std::int64_t last) {
    OwnedTensor ids(DType::i32, Shape{count});
    std::uniform_int_distribution<std::int64_t> distribution(first, last);
    for (std::int64_t i = 0; i < count; ++i) ids.set(i, static_cast<double>(distribution(generator_)));
    return ids;
  }
  Values download(const Tensor& device) const {
    const OwnedTensor host(device.dtype(), device.shape());
    read(host.tensor().raw(), device);
    return host.values();
  }
  static std::span<const std::int32_t> span_of(const Tensor& tensor) {
    return {tensor.data<std::int32_t>(), static_cast<std::size_t>(tensor.elements())};
  }

  /// Calls `body`, which queues kernels on the stream, and waits.
  void run(const std::function<void()>& body) {
#if defined(MAESTRO_FAKE_CUDA)
    const Image before = image();
    run_once(body);
    const Image forward = image();
    restore(before);
    fake_cuda::set_order(fake_cuda::Order::reverse);
    run_once(body);
    fake_cuda::set_order(fake_cuda::Order::forward);
    EXPECT_EQ(forward == image(), true) << "the result depends on the order of threads";
#else
    run_once(body);
#endif
  }

  /// Compares values. f32: within 1e-5 of the largest value; bf16: each value may be rounded to its neighbour.
  void expect_near(const Tensor& device, const Values& wanted, const char* what, double tolerance = 1e-5) const {
    const Values got = download(device);
    ASSERT_EQ(got.size(), wanted.size()) << what;
    double largest = 1e-3;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    const double rounding = device.dtype() == DType::bf16 ? 1.0 / 128 : 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::abs(got[i] - wanted[i]) <= tolerance * largest + rounding * std::abs(wanted[i])) continue;
      FAIL() << what << "[" << i << "] is " << got[i] << ", wanted " << wanted[i];
    }
  }

  bool available_ = false;
  cudaStream_t stream_ = nullptr;
  Workspace workspace_;
  Launch at_;
  cpu::CpuOperatorTable reference_{cpu::Isa::generic, cpu::Bf16Products::converted};
  std::mt19937 generator_{11};

 private:
  using Image = std::vector<std::vector<std::byte>>;

  void run_once(const std::function<void()>& body) const {
    body();
    check(cudaStreamSynchronize(stream_), "kernels");
  }
  void write(const Tensor& device, const void* host) const {
    if (device.bytes() == 0) return;
    check(cudaMemcpyAsync(device.raw(), host, device.bytes(), cudaMemcpyHostToDevice, stream_), "upload");
    check(cudaStreamSynchronize(stream_), "upload");
  }
  void read(void* host, const Tensor& device) const {
    if (device.bytes() == 0) return;
    check(cudaMemcpyAsync(host, device.raw(), device.bytes(), cudaMemcpyDeviceToHost, stream_), "download");
    check(cudaStreamSynchronize(stream_), "download");
  }
  [[nodiscard]] Image image() const {
    Image all;
    for (const Tensor& tensor : tensors_) read(all.emplace_back(tensor.bytes()).data(), tensor);
    return all;
  }
  void restore(const Image& before) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) write(tensors_[i], before[i].data());
  }

  std::vector<Tensor> tensors_;
};

}  // namespace maestro::cuda
