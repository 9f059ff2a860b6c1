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
  std::uint64_t needed_bytes = 0;  ///< room for a segment per core; with less libfabric does not offer shm
};

/// How "auto" treats shared memory on a single host. The processes of a job measure the room at different times, so one
/// process decides for all.
enum class SharedMemoryUse {
  where_offered,  ///< no other process has to agree
  by_all,         ///< the job has decided for it: a process without room is an error
  by_none,        ///< the job has decided against it
};

struct ProviderChoice {
  std::string requested = "auto";         ///< job file's name: auto, shm, tcp, verbs, efa; or libfabric's full name
  std::optional<std::string> overridden;  ///< value of MAESTRO_PROVIDER, which wins; same names
  Reach reach = Reach::network;
  std::optional<SharedMemoryRoom> room = std::nullopt;  ///< reason why shm is not offered, if set
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;
};

/// Returns libfabric's name of the provider to use. "auto" takes shm on a single host, else the first of efa,
/// verbs;ofi_rxm and tcp;ofi_rxm that is `offered`. Errors, each listing the available providers: `invalid_argument`
/// for an unknown name, `unavailable` for a known provider that this machine lacks.
[[nodiscard]] Result<std::string> choose_provider(const ProviderChoice& choice, std::span<const std::string> offered);

/// Returns same_host for a listen address of the loopback network, which only this machine can reach.
[[nodiscard]] Reach reach_of(std::string_view listen_address);

/// Returns libfabric's names of the providers that offer reliable RMA with 32-bit immediates here. Thread-safe; loads
/// plug-ins on the first call, which installs libfabric's signal handlers.
[[nodiscard]] std::vector<std::string> offered_providers();

/// Returns the room in `folder`; nothing if it cannot be read.
[[nodiscard]] std::optional<SharedMemoryRoom> shared_memory_room(const std::string& folder = "/dev/shm");

/// Returns the room that the last of `processes` needs if each has a segment.
[[nodiscard]] SharedMemoryRoom room_of_all(SharedMemoryRoom of_one, std::size_t processes);
/// Returns "/dev/shm has 33 MiB free, the shm provider needs 48 MiB"; empty if there is room.
[[nodiscard]] std::string missing_room(const SharedMemoryRoom& room);

/// Returns MAESTRO_PROVIDER, if set and not empty.
[[nodiscard]] std::optional<std::string> provider_override();

}  // namespace maestro
