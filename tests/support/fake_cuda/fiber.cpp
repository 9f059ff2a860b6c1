// SPDX-License-Identifier: Apache-2.0
// ucontext starts a stack; setjmp and longjmp switch (glibc: without the signal mask), since swapcontext() would read
// the signal mask from the kernel at every switch.
#include "tests/support/fake_cuda/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace maestro::fake_cuda {

namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;  // touched page by page: unused pages take no memory
constexpr unsigned word_bits = 32;

/// Stacks of ended fibers, reused by fibers of any thread: mapping a stack takes longer than most kernels.
class StackPool {
 public:
  std::byte* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::byte* const stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }
  void put(std::byte* stack) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, stack_bytes);  // frames of a stopped fiber
#endif
    const std::lock_guard lock(mutex_);
    free_.push_back(stack);
  }

 private:
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

/// Never destroyed: thread_local fibers may outlive static objects.
StackPool& stacks() {
  static auto* pool = new StackPool;
  return *pool;
}

}  // namespace

Fiber::Fiber() {
  stack_ = stacks().take();
#if defined(__SANITIZE_THREAD__)
  own_tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  destroyed_ = true;
  if (entered_) resume();
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_tsan_);
#endif
  stacks().put(stack_);
}

void Fiber::begin(const std::function<void()>& body) {
  body_ = &body;
  ended_ = false;
}

bool Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  void* home_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&home_fake_stack, stack_, stack_bytes);
#endif
  if (setjmp(outside_) == 0) switch_in();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(home_fake_stack, nullptr, nullptr);
#endif
  return ended_;
}

void Fiber::switch_in() {
#if defined(__SANITIZE_THREAD__)
  home_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 0);
#endif
  if (entered_) longjmp(inside_, 1);
  entered_ = true;
  getcontext(&start_);
  start_.uc_stack.ss_sp = stack_;
  start_.uc_stack.ss_size = stack_bytes;
  start_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&start_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> word_bits),
              static_cast<unsigned>(self));
  setcontext(&start_);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << word_bits) | low);
  self->switched_in();
  self->loop();
}

void Fiber::switched_in() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &home_bottom_, &home_bytes_);
#endif
}

void Fiber::loop() {
  for (;;) {
    (*body_)();
    ended_ = true;
    yield();
  }
}

void Fiber::yield() {
  if (setjmp(inside_) == 0) switch_out(&fake_stack_);
  switched_in();
  if (destroyed_) switch_out(nullptr);  // lets AddressSanitizer free its part
}

void Fiber::switch_out([[maybe_unused]] void** fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, home_bottom_, home_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(home_tsan_, 0);
#endif
  longjmp(outside_, 1);
}

}  // namespace maestro::fake_cuda
