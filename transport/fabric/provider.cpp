// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/provider.hpp"

#include <rdma/fabric.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "transport/fabric/fabric_domain.hpp"

namespace maestro {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // in job files, in libfabric

constexpr std::uint64_t segment_bytes = std::uint64_t{16} << 20;  // libfabric 1.17: 1024 entries a queue

// Network providers in order of preference.
constexpr std::array<Names, 4> known_providers{
    {{"efa", "efa"}, {"verbs", "verbs;ofi_rxm"}, {"tcp", "tcp;ofi_rxm"}, {"shm", "shm"}}};

bool contains(std::span<const std::string> offered, std::string_view name) {
  return std::find(offered.begin(), offered.end(), name) != offered.end();
}

std::string available_names(std::span<const std::string> offered) {
  std::string names = "auto";
  for (const auto& [name, library_name] : known_providers) {
    if (contains(offered, library_name)) names.append(", ").append(name);
  }
  return names;
}

std::string megabytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

Error no_room(const std::string& place, const std::string& missing) {
  return {ErrorCode::unavailable, place + ": " + missing + "; mount it larger, or set " + place + " = tcp"};
}

Result<std::string> first_offered(const ProviderChoice& choice, std::span<const std::string> offered) {
  if (choice.reach == Reach::same_host && choice.shared_memory != SharedMemoryUse::by_none) {
    if (contains(offered, "shm")) return std::string("shm");
    const std::string missing = choice.room ? missing_room(*choice.room) : std::string();
    if (choice.shared_memory == SharedMemoryUse::by_all && !missing.empty()) {
      return no_room("transport.provider", missing);
    }
  }
  for (const auto& [name, library_name] : known_providers) {
    if (name != "shm" && contains(offered, library_name)) return std::string(library_name);
  }
  return Error{ErrorCode::unavailable,
               "libfabric offers none of efa, verbs;ofi_rxm, tcp;ofi_rxm on this machine; see the output of fi_info"};
}

}  // namespace

SharedMemoryRoom room_of_all(SharedMemoryRoom of_one, std::size_t processes) {
  if (processes > 1) of_one.needed_bytes += (processes - 1) * segment_bytes;
  return of_one;
}

std::string missing_room(const SharedMemoryRoom& room) {
  if (room.free_bytes >= room.needed_bytes) return {};
  return "/dev/shm has " + megabytes(room.free_bytes) + " free, the shm provider needs " + megabytes(room.needed_bytes);
}

Result<std::string> choose_provider(const ProviderChoice& choice, std::span<const std::string> offered) {
  const std::string& wanted = choice.overridden ? *choice.overridden : choice.requested;
  const std::string place = choice.overridden ? "MAESTRO_PROVIDER" : "transport.provider";
  if (wanted == "auto") return first_offered(choice, offered);
  if (contains(offered, wanted) && wanted.find(';') != std::string::npos) return wanted;
  const auto known = std::find_if(known_providers.begin(), known_providers.end(),
                                  [&](const Names& names) { return wanted == names.first || wanted == names.second; });
  if (known == known_providers.end()) {
    return Error{ErrorCode::invalid_argument,
                 place + ": unknown provider '" + wanted + "'; available on this machine: " + available_names(offered)};
  }
  const std::string missing = choice.room ? missing_room(*choice.room) : std::string();
  if (!contains(offered, known->second) && known->first == "shm" && !missing.empty()) {
    return no_room(place, missing);
  }
  if (!contains(offered, known->second)) {
    return Error{ErrorCode::unavailable,
                 place + ": provider '" + wanted + "' is not on this machine; available: " + available_names(offered)};
  }
  return std::string(known->second);
}

Reach reach_of(std::string_view listen_address) {
  const bool loopback = listen_address == "localhost" || listen_address == "::1" || listen_address.starts_with("127.");
  return loopback ? Reach::same_host : Reach::network;
}

std::vector<std::string> offered_providers() {
  const InfoPtr hints = make_hints({});
  fi_info* list = nullptr;
  std::vector<std::string> names;
  if (fi_getinfo(fabric_version, nullptr, nullptr, 0, hints.get(), &list) != 0) return names;
  const InfoPtr owned(list);
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    if (!contains(names, info->fabric_attr->prov_name)) names.emplace_back(info->fabric_attr->prov_name);
  }
  return names;
}

std::optional<SharedMemoryRoom> shared_memory_room(const std::string& folder) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) return std::nullopt;
  const auto cores = static_cast<std::uint64_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  return SharedMemoryRoom{std::uint64_t{space.f_bavail} * space.f_bsize, cores * segment_bytes};
}

std::optional<std::string> provider_override() {
  const char* value = std::getenv("MAESTRO_PROVIDER");
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace maestro
