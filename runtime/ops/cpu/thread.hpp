// SPDX-License-Identifier: Apache-2.0
// Preparation of a thread that runs operators of the CPU backend.
#pragma once

namespace maestro::cpu {

/// Prepares the calling device thread, once at its start: subnormal numbers count as zero (they are slow and
/// insignificant here), and library calls stay on this thread. Affects only the calling thread; idempotent.
void prepare_thread();
/// Keeps library calls on this thread, as prepare_thread() does; every product calls this itself, because a library's
/// thread team would compete with other devices' threads.
void stay_on_this_thread();

}  // namespace maestro::cpu
