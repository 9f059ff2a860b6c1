// SPDX-License-Identifier: Apache-2.0
// Peak memory of this process.
#pragma once

namespace maestro {

/// Returns the largest resident set of this process so far, or since begin_max_rss(), in MB (10^6 bytes). Any thread.
[[nodiscard]] double max_rss_mb();
/// Restarts max_rss_mb() at the present memory, for a run that follows another; without effect if the kernel cannot.
void begin_max_rss();
/// Returns the present memory of this process; 0 if the kernel does not report it.
[[nodiscard]] double rss_mb();

}  // namespace maestro
