// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/last_words.hpp"

#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

namespace maestro {

namespace {

constexpr std::size_t reserve_bytes = std::size_t{1} << 20;
/// Memory to report the lack of memory. operator new takes no context, so it is a global.
std::atomic<void*> reserve = nullptr;

void release_reserve() {
  void* held = reserve.exchange(nullptr);
  if (held == nullptr) throw std::bad_alloc();
  std::free(held);  // operator new tries again
}

/// Allocates nothing: memory may have run out.
[[noreturn]] void print_and_exit(const char* reason) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char line[512];
  std::snprintf(line, sizeof line - 1, "error: thread %s: %s", thread, reason);
  std::strcat(line, "\n");
  (void)!write(STDERR_FILENO, line, std::strlen(line));
  _exit(1);
}

[[noreturn]] void report_and_exit() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    print_and_exit("out of memory");
  } catch (const std::exception& problem) {
    print_and_exit(problem.what());
  } catch (...) {
    print_and_exit("an exception of an unknown type");
  }
  print_and_exit("terminated without an exception");
}

}  // namespace

void prepare_last_words() {
  std::set_terminate(report_and_exit);
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder now: later there may be no memory for it
  if (void* held = std::malloc(reserve_bytes)) {
    std::memset(held, 1, reserve_bytes);  // the system commits memory only when it is written
    std::free(reserve.exchange(held));
    std::set_new_handler(release_reserve);
  }
}

}  // namespace maestro
