// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/fabric_domain.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <vector>

#include "transport/fabric/libfabric.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {
namespace {

bool is_shared_memory(std::string_view provider) {
  return provider == "shm";
}

bool takes_ip_address(std::string_view provider) {
  return !is_shared_memory(provider) && provider != "efa";
}

// Gives the endpoint a unique name and frees the segments of dead processes, 16 MiB each. A segment that cannot be
// removed does not prevent opening another.
void name_segment(fi_info& info) {
  (void)sweep_shared_memory();
  const std::string address = "fi_shm://" + new_shared_memory_name();
  std::free(info.src_addr);  // libfabric frees both with free()
  info.src_addr = strdup(address.c_str());
  if (info.src_addr == nullptr) throw std::bad_alloc();
  info.src_addrlen = address.size() + 1;
}

/// Returns the file of a segment by its address, a C string.
std::filesystem::path segment_file(const char* raw_address) {
  constexpr std::string_view scheme = "fi_shm://";
  std::string_view name = raw_address;
  if (name.starts_with(scheme)) name.remove_prefix(scheme.size());
  return "/dev/shm/" + std::string(name);
}

/// Returns whether this process can map a peer's segment: libfabric 1.17 does not check the result of its mapping.
Status check_room_for_segment(const char* raw_address) {
  std::error_code absent;
  const std::uintmax_t bytes = std::filesystem::file_size(segment_file(raw_address), absent);
  if (absent) return {};  // the provider refuses it
  void* const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return Error{ErrorCode::unavailable, "the system refused " + std::to_string(bytes >> 20) +
                                             " MiB of address space for its shared memory: raise `ulimit -v`"};
  }
  munmap(room, bytes);
  return {};
}

/// Returns the name in job files: "tcp" for "tcp;ofi_rxm".
std::string short_name(const std::string& provider) {
  return provider.substr(0, provider.find(';'));
}

Result<InfoPtr> find_provider(const std::string& provider, const std::string& listen_address, MemoryKinds kinds) {
  const bool by_ip = takes_ip_address(provider);
  int code = 0;
  for (const KeyChoice keys : {KeyChoice::ours, KeyChoice::provider}) {
    const InfoPtr hints = make_hints(provider, keys, kinds);
    if (by_ip) {
      hints->addr_format = listen_address.find(':') == std::string::npos ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    }
    fi_info* found = nullptr;
    code = fi_getinfo(fabric_version, by_ip ? listen_address.c_str() : nullptr, nullptr, by_ip ? FI_SOURCE : 0,
                      hints.get(), &found);
    if (code == 0) return InfoPtr(found);
  }
  return Error{ErrorCode::unavailable, fabric_text("fi_getinfo", code)};
}

}  // namespace

std::string fabric_text(std::string_view operation, std::int64_t code) {
  return std::string(operation) + ": " + fi_strerror(static_cast<int>(-code));
}

InfoPtr make_hints(const std::string& provider, KeyChoice keys, MemoryKinds kinds) {
  load_libfabric().or_throw();
  InfoPtr hints(fi_allocinfo());
  if (!hints) throw std::bad_alloc();
  if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());  // freed by fi_freeinfo
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
  if (keys == KeyChoice::provider) hints->domain_attr->mr_mode |= FI_MR_PROV_KEY;
  if (kinds == MemoryKinds::host_and_devices) {
    hints->caps |= FI_HMEM;
    hints->domain_attr->mr_mode |= FI_MR_HMEM;  // every source of a write is registered, and its descriptor passed
  }
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  return hints;
}

fi_mr_attr make_registration(const iovec& span, const MemoryLocation& place, std::uint64_t key) {
  fi_mr_attr attributes{};
  attributes.mr_iov = &span;
  attributes.iov_count = 1;
  attributes.access = FI_WRITE | FI_REMOTE_WRITE;
  attributes.requested_key = key;  // ignored by providers that choose their own
  attributes.iface = place.cuda ? FI_HMEM_CUDA : FI_HMEM_SYSTEM;
  if (place.cuda) attributes.device.cuda = *place.cuda;
  return attributes;
}

Result<std::unique_ptr<FabricDomain>> FabricDomain::open(const std::string& provider, const std::string& listen_address,
                                                         MemoryKinds kinds) {
  std::string no_devices = "the endpoint was opened for memory of the host alone";
  if (kinds == MemoryKinds::host_and_devices) {
    auto found = find_provider(provider, listen_address, kinds);
    auto opened = found ? open_found(*std::move(found)) : found.error();
    if (opened) return opened;
    no_devices =
        found ? "provider " + short_name(provider) + " does not open with FI_HMEM (" + opened.error().message + ")"
              : "provider " + short_name(provider) + " has no FI_HMEM";
  }
  auto found = find_provider(provider, listen_address, MemoryKinds::host);
  auto opened = found ? open_found(*std::move(found)) : found.error();
  if (opened) {
    (*opened)->no_devices_ = std::move(no_devices);
    return opened;
  }
  const std::string remedy = takes_ip_address(provider) ? "; is transport.listen = '" + listen_address +
                                                              "' an address of this machine, such as 127.0.0.1?"
                                                        : "";
  return Error{ErrorCode::unavailable,
               "provider '" + provider + "' cannot be opened (" + opened.error().message + ")" + remedy};
}

Result<std::unique_ptr<FabricDomain>> FabricDomain::open_found(InfoPtr info) {
  std::unique_ptr<FabricDomain> domain(new FabricDomain());
  domain->info_ = std::move(info);
  const bool shared_memory = is_shared_memory(domain->info_->fabric_attr->prov_name);
  if (shared_memory) name_segment(*domain->info_);
  // shm's fi_cq_sread spins and ignores its timeout, so the progress thread sleeps instead.
  domain->can_block_ = !shared_memory;
  const KeptSignalHandlers kept;
  if (auto opened = domain->open_objects(); !opened) return opened.error();
  if (shared_memory) {
    const auto address = domain->raw_address();
    if (!address) return address.error();
    domain->segment_file_ = segment_file(address->c_str());
    domain->segment_ = hold_shared_memory(domain->segment_file_);
  }
  return domain;
}

Status FabricDomain::open_objects() {
  const auto failed = [](const char* operation, int code) {
    return Error{ErrorCode::unavailable, fabric_text(operation, code)};
  };
  fid_fabric* fabric = nullptr;
  if (int code = fi_fabric(info_->fabric_attr, &fabric, nullptr); code != 0) return failed("fi_fabric", code);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int code = fi_domain(fabric, info_.get(), &domain, nullptr); code != 0) return failed("fi_domain", code);
  domain_.reset(domain);
  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  if (int code = fi_av_open(domain, &av_attributes, &addresses, nullptr); code != 0) return failed("fi_av_open", code);
  addresses_.reset(addresses);
  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_DATA;
  cq_attributes.wait_obj = can_block_ ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
  cq_attributes.size = 4096;
  fid_cq* completions = nullptr;
  int code = fi_cq_open(domain, &cq_attributes, &completions, nullptr);
  if (code != 0 && can_block_) {
    can_block_ = false;  // a provider without wait objects is polled
    cq_attributes.wait_obj = FI_WAIT_NONE;
    code = fi_cq_open(domain, &cq_attributes, &completions, nullptr);
  }
  if (code != 0) return failed("fi_cq_open", code);
  completions_.reset(completions);
  fid_ep* endpoint = nullptr;
  if (code = fi_endpoint(domain, info_.get(), &endpoint, nullptr); code != 0) return failed("fi_endpoint", code);
  endpoint_.reset(endpoint);
  if (code = fi_ep_bind(endpoint, &addresses->fid, 0); code != 0) return failed("fi_ep_bind", code);
  if (code = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV); code != 0)
    return failed("fi_ep_bind", code);
  if (code = fi_enable(endpoint); code != 0) return failed("fi_enable", code);
  return {};
}

Result<std::string> FabricDomain::raw_address() const {
  std::vector<char> bytes(512);
  std::size_t size = bytes.size();
  if (int code = fi_getname(&endpoint_->fid, bytes.data(), &size); code != 0) {
    return Error{ErrorCode::internal, fabric_text("fi_getname", code)};
  }
  return std::string(bytes.data(), size);
}

Result<fi_addr_t> FabricDomain::insert(std::string_view raw_address) {
  fi_addr_t inserted = FI_ADDR_UNSPEC;
  // A copy with a terminating zero: shm reads its addresses as C strings.
  const std::string copy(raw_address);
  if (is_shared_memory(info_->fabric_attr->prov_name)) {
    if (const Status room = check_room_for_segment(copy.c_str()); !room) return room.error();
  }
  const int code = fi_av_insert(addresses_.get(), copy.c_str(), 1, &inserted, 0, nullptr);
  if (code != 1) {
    return Error{ErrorCode::unavailable, code < 0 ? fabric_text("fi_av_insert", code)
                                                  : std::string("fi_av_insert: the provider refused the address")};
  }
  return inserted;
}

std::string FabricDomain::readable(std::string_view raw_address) const {
  const std::string copy(raw_address);
  std::vector<char> text(512);
  std::size_t size = text.size();
  if (fi_av_straddr(addresses_.get(), copy.c_str(), text.data(), &size) == nullptr) return "unreadable address";
  text.back() = '\0';
  return text.data();
}

std::uint64_t FabricDomain::new_key() const {
  static thread_local std::random_device source;  // getrandom(2): the next value cannot be guessed from the last
  const std::uint64_t random = (std::uint64_t{source()} << 32) | source();
  const std::size_t bits = 8 * std::min<std::size_t>(info_->domain_attr->mr_key_size, sizeof random);
  return bits < 64 ? random & ((std::uint64_t{1} << bits) - 1) : random;
}

Result<FabricPtr<fid_mr>> FabricDomain::register_memory(std::byte* data, std::size_t bytes,
                                                        const MemoryLocation& place) {
  if (place.cuda && !no_devices_.empty()) return Error{ErrorCode::unavailable, no_devices_};
  const iovec span{data, bytes};
  fid_mr* region = nullptr;
  int code = 0;
  do {
    const fi_mr_attr attributes = make_registration(span, place, new_key());
    code = fi_mr_regattr(domain_.get(), &attributes, 0, &region);
  } while (code == -FI_ENOKEY);  // in use
  if (code != 0) {
    const std::string of_device = place.cuda ? " of " + place.text() : "";
    return Error{ErrorCode::unavailable, "cannot register " + std::to_string(bytes) + " bytes" + of_device + " (" +
                                             fabric_text("fi_mr_regattr", code) + ")"};
  }
  return FabricPtr<fid_mr>(region);
}

void FabricDomain::close_endpoint() {
  endpoint_.reset();
  completions_.reset();
  addresses_.reset();
}

void FabricDomain::remove_segment() const {
  std::error_code ignored;
  if (!segment_file_.empty()) std::filesystem::remove(segment_file_, ignored);
}

}  // namespace maestro
