// SPDX-License-Identifier: Apache-2.0
// The choice of a process's libfabric provider. The choice is pure; only offered_providers() queries the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

enum class Reach {
  same_host,  ///< every peer runs on this machine
  network,    ///< some peer may run elsewhere
};

/// Room in the folder that holds the segments of the shm provider.
struct SharedMemoryRoom {
  std::uint64_t free_bytes = 0;
  std::uint64_t needed_bytes = 0;  ///< libfabric offers shm only with a segment's room for every core
};

/// How "auto" treats shared memory on a single host. The processes of a job measure the room at different times, so one
/// of them decides for all.
enum class SharedMemoryUse {
  where_offered,  ///< no other process has to agree
  by_all,         ///< the job has decided for it: a process without room is an error
  by_none,        ///< the job has decided against it
};

struct ProviderChoice {
  std::string requested = "auto";         ///< of the job file: auto, shm, tcp, verbs, efa; or libfabric's full name
  std::optional<std::string> overridden;  ///< of the environment, MAESTRO_PROVIDER; wins, same names
  Reach reach = Reach::network;
  std::optional<SharedMemoryRoom> room = std::nullopt;  ///< if set, the reason why shm is not offered
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;
};

/// libfabric's name of the provider to use. "auto" takes shm on a single host, else the first of efa, verbs;ofi_rxm and
/// tcp;ofi_rxm that is `offered`. Errors, each listing what is available: `invalid_argument` for an unknown name,
/// `unavailable` for a known one that this machine lacks.
[[nodiscard]] Result<std::string> choose_provider(const ProviderChoice& choice, std::span<const std::string> offered);

/// A listen address of the loopback network can be reached from this machine only.
[[nodiscard]] Reach reach_of(std::string_view listen_address);

/// libfabric's names of the providers that offer reliable RMA with 32-bit immediates here. Thread-safe; loads plug-ins
/// on the first call, which installs libfabric's signal handlers.
[[nodiscard]] std::vector<std::string> offered_providers();

/// Nothing if the folder cannot be looked at.
[[nodiscard]] std::optional<SharedMemoryRoom> shared_memory_room(const std::string& folder = "/dev/shm");

/// Returns the room that the last of `processes` needs, each of which has a segment.
[[nodiscard]] SharedMemoryRoom room_of_all(SharedMemoryRoom of_one, std::size_t processes);
/// Returns "/dev/shm has 33 MiB free, the shm provider needs 48 MiB"; empty: there is room.
[[nodiscard]] std::string missing_room(const SharedMemoryRoom& room);

/// MAESTRO_PROVIDER, if set and not empty.
[[nodiscard]] std::optional<std::string> provider_override();

}  // namespace maestro
