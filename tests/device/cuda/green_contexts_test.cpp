// SPDX-License-Identifier: Apache-2.0
// Division of a device's multiprocessors, with fakes of the driver's functions that describe an H200.
#include "runtime/device/cuda/green_contexts.hpp"

#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

constexpr unsigned all_multiprocessors = 132;
constexpr unsigned group_size = 8;
constexpr unsigned group_count = 15;  // fewer than 132 / 8: clusters of 18 multiprocessors leave 2 unused

/// State of the fakes. The functions are C functions, so it is global; every test resets it.
struct Told {
  unsigned described = 0;  // multiprocessors of the latest description
  int contexts = 0;        // number of existing contexts
  bool refuses = false;    // whether contexts cannot be created
  bool captures = false;   // whether streams capture, so that waiting for their work fails
};
Told told;

CUresult resource_of_device(CUdevice, CUdevResource* resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  *resource = CUdevResource{};
  resource->type = type;
  resource->sm.smCount = all_multiprocessors;
  return CUDA_SUCCESS;
}

CUresult split(CUdevResource* groups, unsigned* count, const CUdevResource* whole, CUdevResource*, unsigned,
               unsigned least) {
  if (whole->sm.smCount != all_multiprocessors || least == 0 || least > group_size) return CUDA_ERROR_INVALID_VALUE;
  if (groups == nullptr) return *count = group_count, CUDA_SUCCESS;
  for (unsigned group = 0; group < *count; ++group) {
    groups[group] = *whole;
    groups[group].sm.smCount = group_size;
  }
  return CUDA_SUCCESS;
}

CUresult describe(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  told.described = 0;
  for (unsigned each = 0; each < count; ++each) told.described += resources[each].sm.smCount;
  *description = nullptr;
  return CUDA_SUCCESS;
}

CUresult create(CUgreenCtx* context, CUdevResourceDesc, CUdevice, unsigned) {
  if (told.refuses) return CUDA_ERROR_NOT_SUPPORTED;
  ++told.contexts;
  *context = nullptr;
  return CUDA_SUCCESS;
}

CUresult destroy(CUgreenCtx) {
  --told.contexts;
  return CUDA_SUCCESS;
}

CUresult create_stream(CUstream* stream, CUgreenCtx, unsigned flags, int priority) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  cudaError_t result = cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority);
  if (told.captures) result = cudaStreamBeginCapture(*stream, cudaStreamCaptureModeThreadLocal);
  return result == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

GreenContextCalls doubles() {
  told = Told();
  return {&resource_of_device, &split, &describe, &create, &destroy, &create_stream};
}

TEST(GreenContexts, two_halves_hold_equally_many_groups_and_nothing_of_the_remainder) {  // GC-1, MP-2, MP-3
  DeviceParts parts(0, doubles());
  std::string why;
  const auto first = parts.take(0.5, why);
  ASSERT_NE(first, nullptr) << why;
  EXPECT_EQ(first->multiprocessors(), 56);
  EXPECT_EQ(told.described, 56u);
  const auto second = parts.take(0.5, why);
  ASSERT_NE(second, nullptr) << why;
  EXPECT_EQ(second->multiprocessors(), 56);
  EXPECT_EQ(told.described, 56u);
  const auto last = parts.take(0.5, why);
  ASSERT_NE(last, nullptr) << why;
  EXPECT_EQ(last->multiprocessors(), 8);
  EXPECT_THROW((void)parts.take(0.1, why), JobError);
  EXPECT_EQ(told.contexts, 3);
}

TEST(GreenContexts, a_part_that_ends_leaves_its_multiprocessors_to_the_next) {
  DeviceParts parts(0, doubles());
  std::string why;
  for (int round = 0; round < 3; ++round) {
    const auto part = parts.take(1, why);
    ASSERT_NE(part, nullptr) << why;
    EXPECT_EQ(part->multiprocessors(), static_cast<int>(group_count * group_size));
    const Stream stream = part->stream(Priority::critical);
    EXPECT_NE(stream.get(), nullptr);
  }
  EXPECT_EQ(told.contexts, 0);
}

TEST(GreenContexts, a_driver_that_lacks_or_refuses_them_is_quoted) {
  std::string why;
  DeviceParts without(0, GreenContextCalls{});
  EXPECT_EQ(without.take(0.5, why), nullptr);
  EXPECT_EQ(why, "the driver lacks green contexts");
  DeviceParts refusing(0, doubles());
  told.refuses = true;
  EXPECT_EQ(refusing.take(0.5, why), nullptr);
  EXPECT_EQ(why, "cuGreenCtxCreate answers 801");
  told.refuses = false;
  EXPECT_NE(refusing.take(1, why), nullptr);  // the refusal lost nothing
}

TEST(GreenContexts, a_device_of_a_part_is_sized_for_it) {
  DeviceParts parts(0, doubles());
  Poller poller;
  DeviceOptions options;
  options.name = "cuda:0";
  options.share = 0.25;
  {
    const CudaDevice device(options, poller, parts, any_table);
    EXPECT_EQ(device.multiprocessors(), 32);
    EXPECT_EQ(told.contexts, 1);
  }
  EXPECT_EQ(told.contexts, 0);
}

TEST(GreenContexts, a_device_whose_part_does_not_work_is_opened_whole_and_says_so) {
  DeviceParts parts(0, doubles());
  told.captures = true;
  Poller poller;
  std::vector<std::string> lines;
  DeviceOptions options;
  options.name = "cuda:0";
  options.share = 0.25;
  options.log = [&lines](const std::string& line) { lines.push_back(line); };
  const CudaDevice device(options, poller, parts, any_table);
  EXPECT_EQ(told.contexts, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("the runtime does not work on its stream"), std::string::npos) << lines[0];
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace maestro::cuda
