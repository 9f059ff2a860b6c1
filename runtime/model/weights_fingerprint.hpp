// SPDX-License-Identifier: Apache-2.0
// A fingerprint of stored weights that takes less time than reading them: equal weights have equal fingerprints.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns 32 hexadecimal digits over the names, sizes and sampled content of the .safetensors files in `folder`, in
/// order of their names; the folder's own path does not count. Sampled are the first MiB, which holds the header, and
/// 256 pieces of 4 KiB spread evenly over the rest: a file of up to 2 MiB counts as a whole, and of a larger file every
/// training step changes some sampled bytes. Errors name the path.
[[nodiscard]] Result<std::string> weights_fingerprint(const std::filesystem::path& folder);

}  // namespace maestro
