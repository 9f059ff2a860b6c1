// SPDX-License-Identifier: Apache-2.0
// Peak memory of this process.
#pragma once

namespace maestro {

/// Largest resident set this process has had, in MB (10^6 bytes). Any thread.
[[nodiscard]] double max_rss_mb();

}  // namespace maestro
