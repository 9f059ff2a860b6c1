// SPDX-License-Identifier: Apache-2.0
// A fingerprint of stored weights, faster than reading them: equal weights have equal fingerprints.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns 32 hexadecimal digits over the names, sizes and sampled content of the .safetensors files in `folder`, in
/// order of their names; the folder's path does not count. The sample is the first MiB, which contains the header, and
/// 256 pieces of 4 KiB, spread evenly over the rest: a file of up to 2 MiB is covered completely, and every training
/// step changes some sampled bytes of a larger file. Errors name the path.
[[nodiscard]] Result<std::string> weights_fingerprint(const std::filesystem::path& folder);

}  // namespace maestro
