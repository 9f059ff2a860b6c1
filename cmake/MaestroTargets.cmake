# SPDX-License-Identifier: Apache-2.0
# Helpers that define libraries and tests alike for all rooms.

# maestro_room(NAME [ALONE] [COLD] SOURCES ... DEPENDS ... [PRIVATE_DEPENDS ...] [APART ...])
# Adds a room as a static library `maestro_NAME` (alias maestro::NAME); include paths begin at the root. Several sources
# compile at a time (maestro_unity), except sources in APART, whose private names clash with other sources' names; with
# ALONE each compiles separately. COLD: steps of a run do not wait for this code (maestro_cold).
function(maestro_room name)
  cmake_parse_arguments(ARG "ALONE;COLD" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;APART" ${ARGN})
  set(kind PUBLIC)
  if(ARG_SOURCES)
    add_library(maestro_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(maestro_${name} PRIVATE $<BUILD_INTERFACE:maestro_flags>)
    if(NOT ARG_ALONE)
      maestro_unity(maestro_${name})
      set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    if(ARG_COLD)
      maestro_cold(maestro_${name})
    endif()
  else()
    add_library(maestro_${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  add_library(maestro::${name} ALIAS maestro_${name})
  set_target_properties(maestro_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(maestro_${name} ${kind} cxx_std_20)
  target_include_directories(maestro_${name} ${kind}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(maestro_${name} ${kind} ${ARG_DEPENDS})
  if(ARG_PRIVATE_DEPENDS)
    target_link_libraries(maestro_${name} PRIVATE ${ARG_PRIVATE_DEPENDS})
  endif()
  set_property(GLOBAL APPEND PROPERTY MAESTRO_ROOMS maestro_${name})
endfunction()

# maestro_unity(TARGET): compiles a target's sources eight at a time, in half to a quarter of the time with long headers
# (CAF, CLI11, nlohmann). A name may then shadow another source's name: the clang preset, which compiles each source
# separately, warns of shadowed names.
function(maestro_unity name)
  if(MAESTRO_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # A source's private class may have members with types of the unnamed namespace.
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
  endif()
endfunction()

# maestro_cold(TARGET): compiles with few optimisations, in three quarters of the time. A build type other than the
# default keeps its optimisations.
function(maestro_cold name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# Puts a condition before gtest_discover_tests()' list of cases: ctest reads these files when it starts.
function(maestro_test_as_program name label)
  get_directory_property(files TEST_INCLUDE_FILES)
  list(POP_BACK files cases)
  set(choice "${CMAKE_CURRENT_BINARY_DIR}/${name}_choice.cmake")
  set(limit 900)
  if(MAESTRO_SANITIZE)
    set(limit 9000)
  endif()
  file(GENERATE OUTPUT "${choice}" CONTENT "if(\"\$ENV{MAESTRO_TESTS}\" STREQUAL \"programs\")
  add_test([=[${name}]=] [=[$<TARGET_FILE:${name}>]=] --gtest_brief=1)
  set_tests_properties([=[${name}]=] PROPERTIES LABELS ${label} TIMEOUT ${limit} WORKING_DIRECTORY [=[${CMAKE_CURRENT_BINARY_DIR}]=]
    ENVIRONMENT [=[XDG_STATE_HOME=${PROJECT_BINARY_DIR}/tests/state]=])
else()
  include([=[${cases}]=])
endif()
")
  set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES ${files} "${choice}")
endfunction()

# Makes sources of test programs compile in half the time: GoogleTest's headers are precompiled for all programs, debug
# lines are left out (but for sanitizers, whose stacks show lines), and optimisations are few (more make gcc 12 warn of
# bounds that hold). The rooms under test keep their options.
function(maestro_compile_quickly name)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    return()
  endif()
  set(lines -g0)
  if(MAESTRO_SANITIZE)
    set(lines -g1)
  endif()
  if(NOT TARGET maestro_test_headers)
    # A program, because headers are precompiled either for programs (-fPIE) or for libraries (-fPIC).
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/test_headers.cpp" CONTENT "int main() {}\n")
    add_executable(maestro_test_headers EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/generated/test_headers.cpp")
    target_link_libraries(maestro_test_headers PRIVATE maestro_flags GTest::gtest GTest::gmock)
    target_compile_options(maestro_test_headers PRIVATE -O1 ${lines} -fpch-preprocess)  # -fpch-preprocess is for ccache
    target_precompile_headers(maestro_test_headers PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<gmock/gmock.h$<ANGLE-R>>"
      "$<$<COMPILE_LANGUAGE:CXX>:<gtest/gtest.h$<ANGLE-R>>")
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1;${lines};-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow>)
  target_precompile_headers(${name} REUSE_FROM maestro_test_headers)
endfunction()

# maestro_test(NAME SOURCES ... DEPENDS ... [LABEL unit|system|gpu] [TIMEOUT seconds] [DEVICE_CHECKED FILTER])
# Adds a GoogleTest program. Each test case is a ctest test; if MAESTRO_TESTS=programs is set when ctest starts, the
# program is one test, because thousands of processes cost minutes. With sanitizers the time limit is ten times longer.
# The targets unit_tests and gpu_tests build the programs of their label. Programs with label gpu skip without a device;
# `./run gpu-test` repeats the tests that the GoogleTest filter FILTER names under compute-sanitizer. Runs of tests are not
# listed among the user's runs.
function(maestro_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;DEVICE_CHECKED" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(MAESTRO_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE maestro_flags ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  maestro_compile_quickly(${name})
  maestro_unity(${name})
  target_compile_definitions(${name} PRIVATE MAESTRO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # The program lists its tests; with CUDA's libraries its first start takes long.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "XDG_STATE_HOME=${PROJECT_BINARY_DIR}/tests/state")
  if(NOT ARG_LABEL STREQUAL "gpu")
    maestro_test_as_program(${name} ${ARG_LABEL})
  endif()
  if(TARGET ${ARG_LABEL}_tests)
    add_dependencies(${ARG_LABEL}_tests ${name})
  endif()
  if(ARG_DEVICE_CHECKED)
    set_property(GLOBAL APPEND PROPERTY MAESTRO_DEVICE_CHECKED "$<TARGET_FILE:${name}> ${ARG_DEVICE_CHECKED}")
  endif()
endfunction()
