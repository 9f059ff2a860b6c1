// SPDX-License-Identifier: Apache-2.0
// Devices that come from a library of their own, loaded while the program runs: CUDA, so far. Pure host code.
//
// DB-1 (CUDA on demand): nothing of CUDA is linked to the program. libmaestro_cuda.so is opened only when a job names a
//       CUDA device and a usable driver is present; any other job runs without both.
// DB-2 (one build): the library carries its own, hidden copy of the rooms below (core, ops, collective, device) and
//       exports a single C function. Only pure interfaces and values (strings, tensors, JobError) cross the boundary,
//       laid out by the same headers: both sides state a digest of them, and a library of another build is refused.
//       Exceptions and dynamic_cast work across: libstdc++ compares types by name.
// The library stays loaded until the process ends: threads and thread-local objects may hold code of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/collective/abort_reason.hpp"
#include "runtime/collective/communicator.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/graph_policy.hpp"

namespace maestro {

struct DeviceOptions {
  std::size_t index = 0;  ///< K of "cuda:K"
  std::string name;       ///< of the Device: "cuda:0"
  /// Two sections on the same device open it twice; work of the critical section goes first if the device can choose.
  Priority priority = Priority::critical;
  /// Equal work gives equal bits; attention on Hopper pays for that with memory and time (cuDNN before 9.25).
  bool deterministic = true;
  GraphUse graphs = GraphUse::where_they_pay;  ///< for passes that repeat, where the device has graphs
  double share = 1;  ///< of the device's multiprocessors, in (0, 1]; the shares of all open devices add up to at most 1
  /// receives lines for people about the device, from any thread; may be empty
  std::function<void(const std::string& line)> log;
};

/// A rank of a group over devices of the same backend.
struct GroupRank {
  std::vector<std::byte> id;  ///< of make_group_id(), the same for all
  std::int64_t size = 1;
  std::int64_t rank = 0;
  /// Shared by ranks of this process that end together: an abort of a single rank ends the others' calls as well, also
  /// a call that waits in join().
  std::shared_ptr<AbortReason> abort;
};

/// Memory of another process' device, mapped for a device of this process until the object is destroyed: after all
/// copies to and from it have ended, and before the memory or the exporting process ends.
class ImportedMemory {
 public:
  virtual ~ImportedMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
};

/// The devices of a kind on this machine. Thread-safe. Errors are JobError with the library's own text.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::size_t devices() const = 0;
  /// "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GiB, driver 580.95.05"
  [[nodiscard]] virtual std::string describe(std::size_t index) const = 0;
  /// Memory of the device that is in use, by whatever program.
  [[nodiscard]] virtual std::size_t used_bytes(std::size_t index) const = 0;
  /// All memory of the device.
  [[nodiscard]] virtual std::size_t memory_bytes(std::size_t index) const = 0;
  /// The backend outlives its devices.
  [[nodiscard]] virtual std::unique_ptr<Device> open(const DeviceOptions& options) const = 0;
  /// Plain bytes that may be sent to other processes.
  [[nodiscard]] virtual std::vector<std::byte> make_group_id() const = 0;
  /// Called on the device's own thread, by all ranks at once: waits for them. The device outlives the result.
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(Device& device, const GroupRank& rank) const = 0;
  /// Returns plain bytes with which another process of this host imports `block` of the device's memory
  /// (MemorySpace::allocate) by import_memory(), valid while the block lives. Empty if the system does not share memory
  /// so. Throws if `block` is no whole block.
  [[nodiscard]] virtual std::vector<std::byte> export_memory(Device& device, const std::byte* block) const = 0;
  /// Imports memory for Device::move() of `device`. Null if the device cannot reach that memory; `why_not` then holds
  /// the reason in a few words. Memory that this process itself has exported is not imported: its devices reach it
  /// directly.
  [[nodiscard]] virtual std::unique_ptr<ImportedMemory> import_memory(Device& device,
                                                                      std::span<const std::byte> exported,
                                                                      std::string& why_not) const = 0;
};

/// Returns the backend, or the reason why there is none, as a single line: "no NVIDIA driver: libcuda.so.1 cannot be
/// opened".
struct CudaStatus {
  const DeviceBackend* backend = nullptr;  ///< of the loaded library, which stays
  std::string missing;                     ///< empty when there is a backend
  [[nodiscard]] std::size_t devices() const { return backend == nullptr ? 0 : backend->devices(); }
};

/// The struct that the library's only exported function, `cuda_entry_name`, fills in. Called once, with the caller's
/// digest (DB-2).
using CudaEntry = void (*)(const char* interface, CudaStatus* status);
inline constexpr const char* cuda_entry_name = "maestro_cuda_backend";
inline constexpr const char* cuda_library_name = "libmaestro_cuda.so";

/// Opens a library, driver or not.
[[nodiscard]] CudaStatus load_cuda_library(const std::filesystem::path& library);

/// Of this process: looks for driver and library at the first call, which may take seconds; a library that is named by
/// MAESTRO_CUDA_LIBRARY is taken without looking for a driver. Thread-safe.
[[nodiscard]] const CudaStatus& cuda_status();

}  // namespace maestro
