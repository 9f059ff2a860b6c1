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
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder now: later there may be no memory for it
  if (void* held = std::malloc(reserve_bytes)) {
    std::memset(held, 1, reserve_bytes);  // the system commits memory only when it is written
    std::free(reserve.exchange(held));
    std::set_new_handler(release_reserve);
  }
}

}  // namespace maestro
