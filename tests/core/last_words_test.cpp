// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/last_words.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace maestro {
namespace {

void throw_on_a_thread(const std::function<void()>& thrower) {
  prepare_last_words();
  std::thread(thrower).join();
}

using ::testing::ExitedWithCode;

TEST(LastWordsDeathTest, of_an_exception_that_leaves_a_thread_are_one_line_and_status_1) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(throw_on_a_thread([] { throw std::runtime_error("no such thing"); }), ExitedWithCode(1),
              "^error: thread .*: no such thing\n$");
  EXPECT_EXIT(throw_on_a_thread([] { throw std::bad_alloc(); }), ExitedWithCode(1),
              "^error: thread .*: out of memory\n$");
  EXPECT_EXIT(throw_on_a_thread([] { throw 7; }), ExitedWithCode(1),
              "^error: thread .*: an exception of an unknown type\n$");
}

TEST(LastWordsDeathTest, of_a_fault_name_the_work_of_the_thread_and_leave_the_end_to_the_signal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reports faults";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using ::testing::KilledBySignal;
  EXPECT_EXIT(throw_on_a_thread([] {
                const FaultPlace outer("section 'a' replica 0");
                { const FaultPlace inner("section 'b' replica 1"); }
                volatile int* volatile nowhere = nullptr;
                *nowhere = 1;
              }),
              KilledBySignal(SIGSEGV), "^error: section 'a' replica 0: signal SIGSEGV\n$");
  EXPECT_EXIT(throw_on_a_thread([] { std::abort(); }), KilledBySignal(SIGABRT), "^error: thread .*: signal SIGABRT\n$");
}

TEST(LastWordsDeathTest, name_the_mapped_file_that_was_cut_short) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reports faults";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = ::testing::TempDir() + "cut.safetensors";
  const auto read_beyond = [&] {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (ftruncate(file, 1 << 16) != 0) _exit(2);
    const auto* text = static_cast<volatile char*>(mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE, file, 0));
    if (ftruncate(file, 100) != 0) _exit(2);
    throw_on_a_thread([text] { _exit(text[1 << 15]); });
  };
  EXPECT_EXIT(
      read_beyond(), ::testing::KilledBySignal(SIGBUS),
      "^error: thread .*: signal SIGBUS in .*cut.safetensors: it was cut short, or its device is full or failing\n$");
  unlink(path.c_str());
}

TEST(LastWordsDeathTest, have_the_form_of_the_other_lines) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_with = [](LineForm form, const std::string& message) {
    set_form_of_last_words(form);
    write_last_words(message.c_str());
    _exit(1);
  };
  EXPECT_EXIT(end_with(LineForm::plain, "a \"b\""), ExitedWithCode(1), "^error: a \"b\"\n$");
  EXPECT_EXIT(end_with(LineForm::timed, "a"), ExitedWithCode(1),
              "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[.][0-9]{3}Z error: a\n$");
  EXPECT_EXIT(end_with(LineForm::json, "a \"b\\c\"\n\xff"), ExitedWithCode(1),
              R"(^[{]"time":"[0-9T:.-]+Z","level":"error","message":"a \\"b\\\\c\\"[?][?]"[}]
$)");
  for (const LineForm form : {LineForm::plain, LineForm::json}) {
    const char* end = form == LineForm::json ? "x\"[}]\n$" : "x\n$";
    EXPECT_EXIT(end_with(form, std::string(10'000, 'x')), ExitedWithCode(1), end);
  }
}

TEST(LastWordsDeathTest, are_one_printable_line_of_the_first_thread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto speak_on_two_threads = [] {
    write_last_words("first\x1b[31m\nerror: forged");
    std::thread([] { write_last_words("second"); }).detach();
    usleep(100'000);  // time for the second thread, whose block is not observable
    _exit(1);
  };
  EXPECT_EXIT(speak_on_two_threads(), ExitedWithCode(1), "^error: first[?]\\[31m[?]error: forged\n$");
}

TEST(LastWordsDeathTest, have_memory_when_there_is_none_left) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exhaust = [] {
    prepare_last_words();
    const std::new_handler handler = std::get_new_handler();
    handler();  // the first call releases the reserve and returns, so that operator new tries again
    try {
      handler();
    } catch (const std::bad_alloc&) {
      _exit(0);
    }
  };
  EXPECT_EXIT(exhaust(), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace maestro
