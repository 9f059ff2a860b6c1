// SPDX-License-Identifier: Apache-2.0
// A switch saves the registers that a called function keeps (System V, x86-64), and takes the other stack.
// swapcontext() would read the signal mask from the kernel, and longjmp() looks for handlers of cancelled threads: a
// kernel's thread switches at every barrier and warp operation.
#include "tests/support/fake_cuda/fiber.hpp"

#include <sys/mman.h>

#include <atomic>
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

/// Saves the registers and the stack pointer, and goes on with those saved at `to`.
extern "C" void maestro_fiber_switch(void** from, void* to);
asm(R"(
.text
.p2align 4
.type maestro_fiber_switch, @function
maestro_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size maestro_fiber_switch, .-maestro_fiber_switch
)");

namespace maestro::fake_cuda {

namespace {

thread_local Fiber* entering = nullptr;

constexpr std::size_t stack_bytes = std::size_t{256} << 10;  // touched page by page: unused pages take no memory
// Stacks begin at different lines of the cache: the pages of all stacks have the same sets.
constexpr std::size_t colours = 61;
constexpr std::size_t colour_bytes = 5 * 64;
constexpr std::size_t saved_registers = 6;

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
  if (!entered_) prepare();
#if defined(__SANITIZE_ADDRESS__)
  void* home_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&home_fake_stack, stack_, stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  home_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 0);
#endif
  maestro_fiber_switch(&outside_, inside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(home_fake_stack, nullptr, nullptr);
#endif
  return ended_;
}

/// Lays out the stack as if enter(), called from nowhere, had switched away before its first instruction.
void Fiber::prepare() {
  static std::atomic<std::size_t> fibers{0};
  entered_ = true;
  entering = this;
  auto** const top = reinterpret_cast<void**>(stack_ + stack_bytes - fibers++ % colours * colour_bytes);
  top[-1] = nullptr;  // the caller
  top[-2] = reinterpret_cast<void*>(&Fiber::enter);
  inside_ = top - 2 - saved_registers;
}

void Fiber::enter() {
  Fiber* const self = entering;
  self->switched_in();
  for (;;) {
    (*self->body_)();
    self->ended_ = true;
    self->yield();
  }
}

void Fiber::switched_in() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &home_bottom_, &home_bytes_);
#endif
}

void Fiber::yield() {
  switch_out(&fake_stack_);
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
  maestro_fiber_switch(&inside_, outside_);
}

}  // namespace maestro::fake_cuda
