// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/libfabric.hpp"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <string>

namespace maestro {

namespace {

constexpr const char* library_name = "libfabric.so.1";

struct Library {
  void* handle = nullptr;
  std::string reason;  // set if loading failed
};

const Library& library() {
  static const Library loaded = [] {
    keep_signal_handlers();
    Library made{dlopen(library_name, RTLD_NOW | RTLD_LOCAL), {}};
    if (made.handle == nullptr) made.reason = dlerror();
    return made;
  }();
  return loaded;
}

/// Returns a function of the library; null if it cannot be loaded.
template <class Function>
Function* function_of_library(const char* name) {
  void* const handle = library().handle;
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle, name));
}

}  // namespace

void keep_signal_handlers() {
  for (const char* const variable : {"IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE"}) {
    if (std::getenv(variable) == nullptr) setenv(variable, "1", 0);
  }
}

KeptSignalHandlers::KeptSignalHandlers() {
  for (Kept& kept : kept_) sigaction(kept.signal, nullptr, &kept.before);
}

KeptSignalHandlers::~KeptSignalHandlers() {
  for (const Kept& kept : kept_) sigaction(kept.signal, &kept.before, nullptr);
}

Status load_libfabric() {
  if (library().handle != nullptr) return {};
  return Error{ErrorCode::unavailable,
               "cannot load libfabric, by which processes exchange tensors (Debian: libfabric1): " + library().reason};
}

}  // namespace maestro

// Hidden, so that libfabric and programs that link it keep theirs.
#define MAESTRO_HIDDEN __attribute__((visibility("hidden")))

extern "C" {

MAESTRO_HIDDEN int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                              const fi_info* hints, fi_info** info) {
  static auto* const call = maestro::function_of_library<decltype(fi_getinfo)>("fi_getinfo");
  return call == nullptr ? -FI_ENOSYS : call(version, node, service, flags, hints, info);
}

MAESTRO_HIDDEN void fi_freeinfo(fi_info* info) {
  static auto* const call = maestro::function_of_library<decltype(fi_freeinfo)>("fi_freeinfo");
  if (call != nullptr) call(info);
}

MAESTRO_HIDDEN fi_info* fi_dupinfo(const fi_info* info) {
  static auto* const call = maestro::function_of_library<decltype(fi_dupinfo)>("fi_dupinfo");
  return call == nullptr ? nullptr : call(info);
}

MAESTRO_HIDDEN int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static auto* const call = maestro::function_of_library<decltype(fi_fabric)>("fi_fabric");
  return call == nullptr ? -FI_ENOSYS : call(attributes, fabric, context);
}

MAESTRO_HIDDEN const char* fi_strerror(int code) {
  static auto* const call = maestro::function_of_library<decltype(fi_strerror)>("fi_strerror");
  return call == nullptr ? "libfabric is not loaded" : call(code);
}

}  // extern "C"
