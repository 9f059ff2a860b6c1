// SPDX-License-Identifier: Apache-2.0
// A separate stack that runs functions in turn and can stop in the middle of a function: a kernel's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace maestro::fake_cuda {

/// Belongs to the host thread that made it. Destroying it while its function is stopped drops the function's stack
/// without calling destructors; kernels hold only trivial values.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next resume() call `body`, which must not throw and must live until resume() has returned true.
  void begin(const std::function<void()>& body);
  /// Runs until the function calls yield() or returns. Returns true if the function has returned.
  bool resume();
  /// Returns to resume(); called by the function.
  void yield();

 private:
  static void enter();
  void prepare();
  void switched_in();
  void switch_out(void** fake_stack);

  std::byte* stack_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  bool entered_ = false;
  bool ended_ = true;
  bool destroyed_ = false;
  void* inside_ = nullptr;   // stack pointer of the stopped function
  void* outside_ = nullptr;  // stack pointer of resume()
  // Data that AddressSanitizer and ThreadSanitizer need for stack switches; unused without them.
  [[maybe_unused]] void* fake_stack_ = nullptr;  // frames checked for use after return; 3 MB a fiber
  [[maybe_unused]] const void* home_bottom_ = nullptr;
  [[maybe_unused]] std::size_t home_bytes_ = 0;
  [[maybe_unused]] void* own_tsan_ = nullptr;
  [[maybe_unused]] void* home_tsan_ = nullptr;
};

}  // namespace maestro::fake_cuda
