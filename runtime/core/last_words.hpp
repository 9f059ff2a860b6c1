// SPDX-License-Identifier: Apache-2.0
// The end of a process after an exception that no code catches, or a fault: an error line, and an exit in bounded time.
#pragma once

#include "runtime/core/line_form.hpp"

namespace maestro {

/// Prepares for fatal errors; called early in main. From then on an exception that leaves a thread prints one line,
/// "error: thread NAME: ...", and ends the process with status 1. A reserve of memory is released when memory first
/// runs out, so that the error can be built and sent. A fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) prints such a
/// line before it ends the process, unless a sanitizer reports it; SIGBUS names the mapped file that cannot be read.
void prepare_last_words();

/// During its lifetime, the line about a fault of this thread names `work`: "section 'student' replica 0". The text
/// outlives the object. Objects on a thread nest.
class FaultPlace {
 public:
  explicit FaultPlace(const char* work) noexcept;
  ~FaultPlace();
  FaultPlace(const FaultPlace&) = delete;
  FaultPlace& operator=(const FaultPlace&) = delete;

 private:
  const char* before_;
};

/// Sets the form of the lines that write_last_words() writes; plain before the first call. Thread-safe.
void set_form_of_last_words(LineForm form) noexcept;

/// Writes a line to standard error: "error: MESSAGE", the same with the time, or a JSON object. Allocates nothing, as
/// memory may have run out; a signal handler may call it. The caller ends the process: another thread that calls it
/// waits for the end, so that a process has a single last line.
void write_last_words(const char* message) noexcept;

}  // namespace maestro
