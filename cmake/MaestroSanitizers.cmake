# SPDX-License-Identifier: Apache-2.0
# MAESTRO_FUZZ: coverage for libFuzzer in every target.
# MAESTRO_SANITIZE: flags for every target, and options with which ctest runs the tests.
# Sanitizers need all of a program, so the flags apply to every target. A finding of UndefinedBehaviorSanitizer ends the
# program: a test that only prints a finding would pass.
if(MAESTRO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MAESTRO_FUZZ needs clang, which has libFuzzer; the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage; only fuzzers link libFuzzer's main()
endif()
if(NOT MAESTRO_SANITIZE)
  return()
endif()

set(MAESTRO_SANITIZE_FLAGS -fsanitize=${MAESTRO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
add_compile_options(${MAESTRO_SANITIZE_FLAGS})
add_link_options(${MAESTRO_SANITIZE_FLAGS})

# ctest reads this file before it looks for tests, in any folder and with any preset. Options that the caller's
# environment already sets are kept. A process that has to exit at once (emergency_exit.hpp) does not join threads.
# oneDNN's thread teams are not instrumented, hence a single thread.
set(maestro_sanitizer_environment "${CMAKE_CURRENT_BINARY_DIR}/sanitizer_environment.cmake")
file(CONFIGURE OUTPUT "${maestro_sanitizer_environment}" @ONLY CONTENT [=[
function(default name value)
  if(NOT DEFINED ENV{${name}})
    set(ENV{${name}} "${value}")
  endif()
endfunction()
default(ASAN_OPTIONS detect_stack_use_after_return=1:check_initialization_order=1:strict_string_checks=1)
default(LSAN_OPTIONS "suppressions='@PROJECT_SOURCE_DIR@/tests/sanitizers/lsan.supp':print_suppressions=0")
default(UBSAN_OPTIONS print_stacktrace=1)
default(TSAN_OPTIONS "suppressions='@PROJECT_SOURCE_DIR@/tests/sanitizers/tsan.supp':second_deadlock_stack=1:history_size=6:report_thread_leaks=0")
default(OMP_NUM_THREADS 1)
]=])
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${maestro_sanitizer_environment}")
