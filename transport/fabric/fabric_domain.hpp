// SPDX-License-Identifier: Apache-2.0
// Owners of libfabric's objects. Internal to this folder: the only header that shows libfabric.
//
// FD-1 (lifetime): the domain lives as long as the last region registered in it; objects close in the order endpoint,
//       completion queue, address vector, regions, domain, fabric.
// FD-3 (unguessable keys): keys of regions are random if the provider accepts chosen keys (tcp and shm do), and end
//       with their region: an old key, or a key of another run at the same address, reaches nothing.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"
#include "transport/region.hpp"

namespace maestro {

inline constexpr std::uint32_t fabric_version = FI_VERSION(1, 17);

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

template <class Object>
struct FabricCloser {
  void operator()(Object* object) const { fi_close(&object->fid); }
};
template <class Object>
using FabricPtr = std::unique_ptr<Object, FabricCloser<Object>>;

/// Who chooses the keys of registered memory.
enum class KeyChoice {
  ours,      ///< random ones
  provider,  ///< the provider's: RDMA cards and others that insist
};
/// Memory that a provider has to transfer.
enum class MemoryKinds { host, host_and_devices };
/// Returns the runtime's requirements of a provider; an empty name stands for all providers. Loads libfabric, and
/// throws JobError(unavailable) if that fails.
[[nodiscard]] InfoPtr make_hints(const std::string& provider, KeyChoice keys = KeyChoice::provider,
                                 MemoryKinds kinds = MemoryKinds::host);
/// Returns the registration attributes of `span`: read by this process's writes, written by peers. Refers to `span`.
[[nodiscard]] fi_mr_attr make_registration(const iovec& span, const MemoryLocation& place, std::uint64_t key);

/// Returns "operation: libfabric's text" for a negative libfabric return value.
[[nodiscard]] std::string fabric_text(std::string_view operation, std::int64_t code);

/// A domain with an endpoint. The calls are as thread-safe as FI_THREAD_SAFE makes them.
class FabricDomain {
 public:
  /// Opens a domain for `kinds`, or only for host memory if the provider lacks FI_HMEM.
  static Result<std::unique_ptr<FabricDomain>> open(const std::string& provider, const std::string& listen_address,
                                                    MemoryKinds kinds);

  /// Returns the endpoint's raw address in the provider's format.
  Result<std::string> raw_address() const;
  Result<fi_addr_t> insert(std::string_view raw_address);
  /// Returns the readable form of a raw address.
  [[nodiscard]] std::string readable(std::string_view raw_address) const;
  Result<FabricPtr<fid_mr>> register_memory(std::byte* data, std::size_t bytes, const MemoryLocation& place);

  [[nodiscard]] fid_ep* endpoint() const { return endpoint_.get(); }
  [[nodiscard]] fid_cq* completions() const { return completions_.get(); }
  [[nodiscard]] std::size_t max_write_bytes() const { return info_->ep_attr->max_msg_size; }
  /// Returns whether remote addresses are virtual addresses, not offsets into a region.
  [[nodiscard]] bool uses_virtual_addresses() const { return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0; }
  /// Returns whether fi_cq_sread sleeps and fi_cq_signal wakes it; otherwise the caller polls.
  [[nodiscard]] bool can_block() const { return can_block_; }

  /// Returns whether completions come in the order of the writes to all peers, so that a write to a dead peer, which
  /// has none, keeps back all later ones.
  [[nodiscard]] bool completes_in_order() const { return !segment_file_.empty(); }

  /// Closes connections and queues; regions and their domain stay. Only after the last use of the endpoint.
  void close_endpoint();
  /// Removes the shm segment's name for an endpoint that is never closed (PT-5). Processes that have mapped the segment
  /// keep it.
  void remove_segment() const;

 private:
  FabricDomain() = default;
  static Result<std::unique_ptr<FabricDomain>> open_found(InfoPtr info);
  Status open_objects();
  /// Returns a random key (FD-3).
  [[nodiscard]] std::uint64_t new_key() const;

  // Destroyed from the last to the first (FD-1).
  InfoPtr info_;
  FabricPtr<fid_fabric> fabric_;
  FabricPtr<fid_domain> domain_;
  FabricPtr<fid_av> addresses_;
  FabricPtr<fid_cq> completions_;
  FabricPtr<fid_ep> endpoint_;
  bool can_block_ = false;
  std::filesystem::path segment_file_;  // empty: not shm
  FileDescriptor segment_;              // segment of shm, held (hold_shared_memory)
  std::string no_devices_;              // reason why device memory is not registered; empty: it is
};

}  // namespace maestro
