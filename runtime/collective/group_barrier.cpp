// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/group_barrier.hpp"

namespace maestro {
namespace {

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool GroupBarrier::arrive() {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != ranks_) return false;
  // Before the phase ends: a rank that enters the next phase has seen the end of this phase.
  arrived_.store(0, std::memory_order_relaxed);
  return true;
}

std::uint32_t GroupBarrier::next_word(std::uint32_t seen) const {
  for (int spin = 0; spin < spins_; ++spin) {
    const std::uint32_t word = word_.load(std::memory_order_acquire);
    if (word != seen) return word;
    relax();
  }
  word_.wait(seen, std::memory_order_acquire);
  return word_.load(std::memory_order_acquire);
}

bool GroupBarrier::open() {
  const std::uint32_t before = word_.load(std::memory_order_acquire);
  if ((before & aborted_bit) != 0) return false;
  if (!arrive()) return next_word(before) / one_phase != before / one_phase;
  // The phase cannot have ended without this rank: if the word has changed, abort() came first.
  std::uint32_t expected = before;
  if (!word_.compare_exchange_strong(expected, before + one_phase, std::memory_order_acq_rel)) return false;
  word_.notify_all();
  return true;
}

void GroupBarrier::meet() {
  std::uint32_t word = word_.load(std::memory_order_acquire);
  const std::uint32_t phase = word / one_phase;
  if (arrive()) {
    word_.fetch_add(one_phase, std::memory_order_acq_rel);
    word_.notify_all();
    return;
  }
  while (word / one_phase == phase) word = next_word(word);
}

void GroupBarrier::abort() {
  word_.fetch_or(aborted_bit, std::memory_order_acq_rel);
  word_.notify_all();
}

}  // namespace maestro
