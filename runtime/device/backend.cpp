// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/backend.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <system_error>

#include "runtime/core/library_places.hpp"
#include "runtime/device/cuda_driver.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

CudaStatus missing(std::string why) {
  return {nullptr, std::move(why)};
}

CudaStatus find_backend() {
  const char* named = std::getenv("MAESTRO_CUDA_LIBRARY");
  if (named != nullptr && *named != 0) return load_cuda_library(named);  // the named library may need no driver
  const std::string left_out = MAESTRO_CUDA_MISSING;
  if (!left_out.empty()) return missing("this build has no CUDA backend (" + left_out + ")");
  if (std::string why = refusal_of(find_cuda_driver(), MAESTRO_CUDA_TOOLKIT); !why.empty()) return missing(why);
  std::string places;
  for (const fs::path& place : library_places(cuda_library_name)) {
    std::error_code failed;
    if (fs::exists(place, failed)) return load_cuda_library(place);
    places += (places.empty() ? "" : ", ") + place.string();
  }
  return missing("the CUDA backend's library is not at " + places + "; name it in MAESTRO_CUDA_LIBRARY");
}

}  // namespace

CudaStatus load_cuda_library(const fs::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);  // threads may still run its code
  if (handle == nullptr) return missing(std::string("the CUDA backend cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<CudaEntry>(dlsym(handle, cuda_entry_name));
  if (entry == nullptr) return missing(library.string() + " is not a CUDA backend of this program");
  CudaStatus status;
  entry(MAESTRO_CUDA_INTERFACE, &status);
  return status;
}

const CudaStatus& cuda_status() {
  static const CudaStatus status = find_backend();
  return status;
}

}  // namespace maestro
