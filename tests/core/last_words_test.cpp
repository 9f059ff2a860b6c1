// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/last_words.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <thread>

namespace maestro {
namespace {

void throw_on_a_thread(void (*thrower)()) {
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
