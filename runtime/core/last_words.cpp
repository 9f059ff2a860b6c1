// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/last_words.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdint>
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
/// Memory for reporting that memory ran out. operator new takes no context, so it is a global.
std::atomic<void*> reserve = nullptr;
/// The form used by write_last_words(), which a signal handler calls.
std::atomic<LineForm> form_of_last_words = LineForm::plain;
static_assert(std::atomic<LineForm>::is_always_lock_free);

void release_reserve() {
  void* held = reserve.exchange(nullptr);
  if (held == nullptr) throw std::bad_alloc();
  std::free(held);  // operator new tries again
}

/// A line of bounded length. Text that does not fit is left out; room for the line's end remains.
class LastLine {
 public:
  void add(const char* text) {
    for (; *text != '\0'; ++text) add(*text);
  }
  /// Adds text to a JSON string: bytes beyond printable ASCII as question marks.
  void add_quoted(const char* text) {
    for (; *text != '\0'; ++text) {
      if (*text == '"' || *text == '\\') add('\\');
      add(*text >= ' ' && *text <= '~' ? *text : '?');
    }
  }
  /// Adds text without control characters, which an exception's text may have from foreign names.
  void add_printable(const char* text) {
    for (const char* at = text; *at != '\0'; ++at) {
      const auto byte = static_cast<unsigned char>(*at);
      const bool c1 = byte >= 0x80 && byte < 0xa0 && at != text && static_cast<unsigned char>(at[-1]) == 0xc2;
      add(byte < 0x20 || byte == 0x7f || c1 ? '?' : *at);
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

/// Ends the process. Allocates nothing: memory may have run out.
[[noreturn]] void print_and_exit(const char* reason) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char message[480];
  std::snprintf(message, sizeof message, "thread %s: %s", thread, reason);
  write_last_words(message);
  _exit(1);
}

thread_local const char* fault_place = nullptr;

/// The lines of a file, read without heap memory. A line that is too long loses its rest.
class PlainLines {
 public:
  explicit PlainLines(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~PlainLines() {
    if (file_ >= 0) close(file_);
  }
  PlainLines(const PlainLines&) = delete;
  PlainLines& operator=(const PlainLines&) = delete;
  /// Returns null after the last line; a line is valid until the next call.
  [[nodiscard]] const char* next() {
    for (std::size_t length = 0;;) {
      if (at_ == filled_) {
        const ssize_t count = file_ < 0 ? 0 : read(file_, buffer_, sizeof buffer_);
        if (count <= 0) return nullptr;
        at_ = 0;
        filled_ = static_cast<std::size_t>(count);
      }
      const char c = buffer_[at_++];
      if (c == '\n') {
        line_[length] = '\0';
        return line_;
      }
      if (length + 1 < sizeof line_) line_[length++] = c;
    }
  }

 private:
  int file_;
  char buffer_[1024];
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  char line_[512];
};

/// Writes " in PATH: ..." to `text` if the address is in a mapped file.
void name_mapped_file(const void* address, char* text, std::size_t bytes) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  PlainLines maps("/proc/self/maps");
  while (const char* line = maps.next()) {
    std::uintptr_t begin = 0, end = 0;
    const char* const path = std::strchr(line, '/');
    if (path == nullptr || std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (begin <= wanted && wanted < end) {
      std::snprintf(text, bytes, " in %s: it was cut short, or its device is full or failing", path);
      return;
    }
  }
}

/// Handles a fault's signal; the signal's default effect follows.
void report_fault(int fault, siginfo_t* info, void* /*context*/) {
  static thread_local bool reporting = false;
  if (std::exchange(reporting, true)) {  // a fault of this function
    signal(fault, SIG_DFL);
    raise(fault);
  }
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char why[320] = "";
  if (fault == SIGBUS && info->si_code == BUS_ADRERR) name_mapped_file(info->si_addr, why, sizeof why);
  char message[480];
  std::snprintf(message, sizeof message, "%s%s: signal SIG%s%s", fault_place == nullptr ? "thread " : "",
                fault_place == nullptr ? thread : fault_place, sigabbrev_np(fault), why);
  write_last_words(message);
  signal(fault, SIG_DFL);
  raise(fault);
}

void report_faults() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct sigaction action {};
  action.sa_sigaction = report_fault;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_NODEFER);  // a second thread waits in write_last_words()
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
  static std::atomic_flag spoken;
  static thread_local bool speaking = false;
  if (spoken.test_and_set() && !speaking) {
    while (true) pause();  // another thread is ending the process
  }
  speaking = true;
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
  line.add_printable(message);
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
