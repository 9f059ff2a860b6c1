// SPDX-License-Identifier: Apache-2.0
#include "actors/process/shadow_folder.hpp"

#include <unistd.h>

#include "runtime/core/result.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

constexpr const char* memory_files = "/dev/shm";

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

}  // namespace

ShadowFolder::ShadowFolder(fs::path model_files)
    : store_(fs::path(memory_files) / (new_shared_memory_name() + ":" + std::to_string(getuid()) + ":0"),
             {1, {}, std::move(model_files)}) {
  std::error_code failure;  // without the folder the first checkpoint fails with the reason
  fs::create_directories(store_.root(), failure);
  held_ = hold_shared_memory(store_.root());
}

ShadowFolder::~ShadowFolder() {
  std::error_code ignored;  // the next run sweeps it
  fs::remove_all(store_.root(), ignored);
}

Status ShadowFolder::room_for(std::uint64_t bytes) const {
  std::error_code failure;
  const std::uint64_t free = fs::space(memory_files, failure).available;
  if (!failure && free >= 2 * bytes) return {};
  return Error{ErrorCode::unavailable,
               "train.shadow_every: two checkpoints of " + mebibytes(bytes) + " do not fit into " + memory_files +
                   ", which " +
                   (failure ? "cannot be used: " + failure.message() : "has " + mebibytes(free) + " free") +
                   "; enlarge it (docker run --shm-size), or leave train.shadow_every at 0"};
}

}  // namespace maestro
