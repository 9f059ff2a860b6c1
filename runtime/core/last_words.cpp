// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/last_words.hpp"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "runtime/core/iso_time.hpp"

namespace maestro {

namespace {

constexpr std::size_t reserve_bytes = std::size_t{1} << 20;
/// Memory to report the lack of memory. operator new takes no context, so it is a global.
std::atomic<void*> reserve = nullptr;
/// Of write_last_words(), which a signal handler calls.
std::atomic<LineForm> form_of_last_words = LineForm::plain;
static_assert(std::atomic<LineForm>::is_always_lock_free);

void release_reserve() {
  void* held = reserve.exchange(nullptr);
  if (held == nullptr) throw std::bad_alloc();
  std::free(held);  // operator new tries again
}

/// A line of bounded length. What does not fit is left out; room for the end of the line remains.
class LastLine {
 public:
  void add(const char* text) {
    for (; *text != '\0'; ++text) add(*text);
  }
  /// As a part of a JSON string: bytes beyond printable ASCII as question marks.
  void add_quoted(const char* text) {
    for (; *text != '\0'; ++text) {
      if (*text == '"' || *text == '\\') add('\\');
      add(*text >= ' ' && *text <= '~' ? *text : '?');
    }
  }
  void end_and_write(const char* end) {
    const std::size_t bytes = std::strlen(end);
    std::memcpy(text_ + length_, end, bytes);
    (void)!write(STDERR_FILENO, text_, length_ + bytes);
  }

 private:
  static constexpr std::size_t most = 512;
  static constexpr std::size_t longest_end = 8;

  void add(char c) {
    if (length_ < most) text_[length_++] = c;
  }

  char text_[most + longest_end];
  std::size_t length_ = 0;
};

/// Allocates nothing: memory may have run out.
[[noreturn]] void print_and_exit(const char* reason) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char message[480];
  std::snprintf(message, sizeof message, "thread %s: %s", thread, reason);
  write_last_words(message);
  _exit(1);
}

thread_local const char* fault_place = nullptr;

/// As a signal handler; the signal's own effect follows.
void report_fault(int fault) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char message[480];
  std::snprintf(message, sizeof message, "%s%s: signal SIG%s", fault_place == nullptr ? "thread " : "",
                fault_place == nullptr ? thread : fault_place, sigabbrev_np(fault));
  write_last_words(message);
  raise(fault);
}

void report_faults() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct sigaction action {};
  action.sa_handler = report_fault;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(fault, &action, nullptr);
#endif
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

FaultPlace::FaultPlace(const char* work) noexcept : before_(std::exchange(fault_place, work)) {}

FaultPlace::~FaultPlace() {
  fault_place = before_;
}

void set_form_of_last_words(LineForm form) noexcept {
  form_of_last_words = form;
}

void write_last_words(const char* message) noexcept {
  const LineForm form = form_of_last_words;
  const IsoTimeText time = iso_time_text(std::chrono::system_clock::now());
  LastLine line;
  if (form == LineForm::json) {
    line.add("{\"time\":\"");
    line.add(time.data());
    line.add("\",\"level\":\"error\",\"message\":\"");
    line.add_quoted(message);
    return line.end_and_write("\"}\n");
  }
  if (form == LineForm::timed) {
    line.add(time.data());
    line.add(" ");
  }
  line.add("error: ");
  line.add(message);
  line.end_and_write("\n");
}

void prepare_last_words() {
  std::set_terminate(report_and_exit);
  report_faults();
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder now: later there may be no memory for it
  if (void* held = std::malloc(reserve_bytes)) {
    std::memset(held, 1, reserve_bytes);  // the system commits memory only when it is written
    std::free(reserve.exchange(held));
    std::set_new_handler(release_reserve);
  }
}

}  // namespace maestro
