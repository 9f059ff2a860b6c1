// SPDX-License-Identifier: Apache-2.0
// Devices from a separate library that is loaded at run time: CUDA, so far. Pure host code.
//
// DB-1 (CUDA on demand): nothing of CUDA is linked to the program. libmaestro_cuda.so is opened only when a job names a
//       CUDA device and a usable driver is present; any other job runs without both.
// DB-2 (one build): the library contains a hidden copy of the rooms below (core, ops, collective, device) and
//       exports a single C function. Only pure interfaces and values (strings, tensors, JobError) cross the boundary,
//       laid out by the same headers: both sides state a digest of them, and a library of another build is refused.
//       Exceptions and dynamic_cast work across: libstdc++ compares types by name.
// The library stays loaded until the process ends: threads and thread-local objects may use its code.
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
  std::string name;       ///< name of the Device: "cuda:0"
  /// Priority for two sections that open the same device: critical work goes first if the device can choose.
  Priority priority = Priority::critical;
  /// Guarantee of equal bits for equal work; attention on Hopper then needs more memory and time (cuDNN before 9.25).
  bool deterministic = true;
  GraphUse graphs = GraphUse::where_they_pay;  ///< use for passes that repeat, if the device has graphs
  double share = 1;  ///< share of the multiprocessors, in (0, 1]; the shares of all open devices add up to at most 1
  /// Receives lines for people about the device, from any thread; may be empty.
  std::function<void(const std::string& line)> log;
};

/// A rank in a group over devices of the same backend.
struct GroupRank {
  std::vector<std::byte> id;  ///< result of make_group_id(), the same for all
  std::int64_t size = 1;
  std::int64_t rank = 0;
  /// Reason shared by ranks of this process that end together: an abort of a single rank ends the others' calls as
  /// well, also a call that waits in join().
  std::shared_ptr<AbortReason> abort;
};

/// Memory of another process' device, mapped for a device of this process until the object is destroyed: after the last
/// copy to or from it, and before the memory or the exporting process ends.
class ImportedMemory {
 public:
  virtual ~ImportedMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
};

/// Devices of a kind on this machine. Thread-safe. Errors are JobError with the library's text.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::size_t devices() const = 0;
  /// Returns "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GiB, driver 580.95.05".
  [[nodiscard]] virtual std::string describe(std::size_t index) const = 0;
  /// Returns the device memory in use by all programs.
  [[nodiscard]] virtual std::size_t used_bytes(std::size_t index) const = 0;
  /// Returns the device's total memory.
  [[nodiscard]] virtual std::size_t memory_bytes(std::size_t index) const = 0;
  /// Opens a device. The backend outlives its devices.
  [[nodiscard]] virtual std::unique_ptr<Device> open(const DeviceOptions& options) const = 0;
  /// Returns plain bytes that may be sent to other processes.
  [[nodiscard]] virtual std::vector<std::byte> make_group_id() const = 0;
  /// Joins a group. Called on the device's thread, by all ranks at once: waits for them. The device outlives the
  /// result.
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(Device& device, const GroupRank& rank) const = 0;
  /// Returns plain bytes with which another process of this host imports `block` of the device's memory
  /// (MemorySpace::allocate) by import_memory(), valid while the block lives. Empty if the system does not share memory
  /// this way. Throws if `block` is not a complete block.
  [[nodiscard]] virtual std::vector<std::byte> export_memory(Device& device, const std::byte* block) const = 0;
  /// Imports memory for Device::move() of `device`. Returns null if the device cannot reach that memory; `why_not` then
  /// holds the reason in a few words. Memory that this process has exported is not imported: its devices reach it
  /// directly.
  [[nodiscard]] virtual std::unique_ptr<ImportedMemory> import_memory(Device& device,
                                                                      std::span<const std::byte> exported,
                                                                      std::string& why_not) const = 0;
};

/// The backend, or the reason why it is missing as a single line: "no NVIDIA driver: libcuda.so.1 cannot be opened".
struct CudaStatus {
  const DeviceBackend* backend = nullptr;  ///< backend of the loaded library, which stays loaded
  std::string missing;                     ///< reason for a missing backend; else empty
  [[nodiscard]] std::size_t devices() const { return backend == nullptr ? 0 : backend->devices(); }
};

/// The struct that the library's only exported function, `cuda_entry_name`, fills in. Called once, with the caller's
/// digest (DB-2).
using CudaEntry = void (*)(const char* interface, CudaStatus* status);
inline constexpr const char* cuda_entry_name = "maestro_cuda_backend";
inline constexpr const char* cuda_library_name = "libmaestro_cuda.so";

/// Opens a library, with or without a driver.
[[nodiscard]] CudaStatus load_cuda_library(const std::filesystem::path& library);

/// Returns the status of this process: looks for driver and library at the first call, which may take seconds. A
/// library named by MAESTRO_CUDA_LIBRARY is used without looking for a driver. Thread-safe.
[[nodiscard]] const CudaStatus& cuda_status();

}  // namespace maestro
