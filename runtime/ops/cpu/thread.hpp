// SPDX-License-Identifier: Apache-2.0
// What a thread needs before it runs operators of the CPU backend.
#pragma once

namespace maestro::cpu {

/// To be called once at the start of a device thread: subnormal numbers count as zero (they are slow and mean nothing
/// here), and library calls stay on this thread. Affects the calling thread only; idempotent.
void prepare_thread();
/// The second half of it, which every product ensures for itself: a library team would fight with other devices'
/// threads.
void stay_on_this_thread();

}  // namespace maestro::cpu
