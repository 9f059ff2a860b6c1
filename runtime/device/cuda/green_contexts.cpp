// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/green_contexts.hpp"

#include <dlfcn.h>

namespace maestro::cuda {

namespace {

/// Returns the driver's smallest group: 8 multiprocessors from compute capability 9 on, 4 before.
unsigned least_group(int device) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  return major >= 9 ? 8 : 4;
}

std::string refused(const char* call, CUresult result) {
  return std::string(call) + " answers " + std::to_string(static_cast<int>(result));
}

}  // namespace

bool GreenContextCalls::complete() const {
  return resource_of_device != nullptr && split != nullptr && describe != nullptr && create != nullptr &&
         destroy != nullptr && create_stream != nullptr;
}

GreenContextCalls GreenContextCalls::of_driver() {
  GreenContextCalls calls;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return calls;
  const auto find = [driver](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(driver, name));
  };
  find(calls.resource_of_device, "cuDeviceGetDevResource");
  find(calls.split, "cuDevSmResourceSplitByCount");
  find(calls.describe, "cuDevResourceGenerateDesc");
  find(calls.create, "cuGreenCtxCreate");
  find(calls.destroy, "cuGreenCtxDestroy");
  find(calls.create_stream, "cuGreenCtxStreamCreate");
  return calls;
}

DeviceParts::DeviceParts(int device, const GreenContextCalls& calls) : device_(device), calls_(calls) {}

std::optional<DeviceParts::Cut> DeviceParts::cut(std::string& why_not) const {
  if (!calls_.complete()) {
    why_not = "the driver lacks green contexts";
    return std::nullopt;
  }
  // A CUdevice is the ordinal of the device, as in the runtime.
  CUdevResource whole{};
  CUresult result = calls_.resource_of_device(device_, &whole, CU_DEV_RESOURCE_TYPE_SM);
  if (result != CUDA_SUCCESS) return why_not = refused("cuDeviceGetDevResource", result), std::nullopt;
  unsigned count = 0;
  result = calls_.split(nullptr, &count, &whole, nullptr, 0, least_group(device_));
  if (result != CUDA_SUCCESS || count == 0) {
    return why_not = refused("cuDevSmResourceSplitByCount", result), std::nullopt;
  }
  std::vector<CUdevResource> groups(count);
  result = calls_.split(groups.data(), &count, &whole, nullptr, 0, least_group(device_));  // MP-3
  if (result != CUDA_SUCCESS || count == 0) {
    return why_not = refused("cuDevSmResourceSplitByCount", result), std::nullopt;
  }
  groups.resize(count);
  return Cut{std::move(groups), MultiprocessorLedger(static_cast<int>(count))};
}

CUresult DeviceParts::create(const std::vector<int>& groups, CUgreenCtx* context) {
  std::vector<CUdevResource> resources;
  for (const int group : groups) resources.push_back(cut_->groups[static_cast<std::size_t>(group)]);
  CUdevResourceDesc description = nullptr;
  const CUresult described = calls_.describe(&description, resources.data(), static_cast<unsigned>(resources.size()));
  if (described != CUDA_SUCCESS) return described;
  return calls_.create(context, description, device_, CU_GREEN_CTX_DEFAULT_STREAM);
}

std::unique_ptr<DevicePart> DeviceParts::take(double share, std::string& why_not) {
  const std::lock_guard lock(mutex_);
  if (!cut_) cut_ = cut(why_not);
  if (!cut_) return nullptr;
  std::vector<int> groups = cut_->ledger.take(share);
  CUgreenCtx context = nullptr;
  if (const CUresult result = create(groups, &context); result != CUDA_SUCCESS) {
    cut_->ledger.give_back(groups);
    why_not = refused("cuGreenCtxCreate", result);
    return nullptr;
  }
  return std::make_unique<DevicePart>(*this, context, std::move(groups));
}

void DeviceParts::give_back(const std::vector<int>& groups) {
  const std::lock_guard lock(mutex_);
  cut_->ledger.give_back(groups);
}

DevicePart::DevicePart(DeviceParts& parts, CUgreenCtx context, std::vector<int> groups)
    : parts_(parts), context_(context), groups_(std::move(groups)) {}

DevicePart::~DevicePart() {
  static_cast<void>(parts_.calls_.destroy(context_));
  parts_.give_back(groups_);
}

Stream DevicePart::stream(Priority priority) const {
  CUstream stream = nullptr;
  const CUresult result =
      parts_.calls_.create_stream(&stream, context_, CU_STREAM_NON_BLOCKING, stream_priority(priority));
  if (result != CUDA_SUCCESS) throw DeviceError(refused("cuGreenCtxStreamCreate", result));
  return Stream(stream);
}

int DevicePart::multiprocessors() const {
  const std::lock_guard lock(parts_.mutex_);
  return static_cast<int>(groups_.size() * parts_.cut_->groups.front().sm.smCount);
}

}  // namespace maestro::cuda
