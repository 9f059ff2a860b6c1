# SPDX-License-Identifier: Apache-2.0
# Helpers that give every room the same shape of library and test.

# maestro_room(NAME SOURCES ... DEPENDS ... [PRIVATE_DEPENDS ...])
# A room as a static library `maestro_NAME` (alias maestro::NAME), included from the root.
function(maestro_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  set(kind PUBLIC)
  if(ARG_SOURCES)
    add_library(maestro_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(maestro_${name} PRIVATE $<BUILD_INTERFACE:maestro_flags>)
  else()
    add_library(maestro_${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  add_library(maestro::${name} ALIAS maestro_${name})
  set_target_properties(maestro_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(maestro_${name} ${kind} cxx_std_20)
  target_include_directories(maestro_${name} ${kind}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/maestro>)
  target_link_libraries(maestro_${name} ${kind} ${ARG_DEPENDS})
  if(ARG_PRIVATE_DEPENDS)
    target_link_libraries(maestro_${name} PRIVATE ${ARG_PRIVATE_DEPENDS})
  endif()
  set_property(GLOBAL APPEND PROPERTY MAESTRO_ROOMS maestro_${name})
endfunction()

# maestro_test(NAME SOURCES ... DEPENDS ... [LABEL unit|system|gpu] [TIMEOUT seconds] [DEVICE_CHECKED FILTER])
# A GoogleTest program; each test case is a ctest test of its own. Sanitizers cost time: their limit is ten times longer.
# Programs of label gpu need a device, skip without it, and are built by the target gpu_tests. `./run gpu-test` repeats
# those of their tests that FILTER (of GoogleTest) names under compute-sanitizer.
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
  target_compile_definitions(${name} PRIVATE MAESTRO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Tests are listed by the program itself, which with CUDA's libraries takes long to load the first time.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL STREQUAL "gpu")
    add_dependencies(gpu_tests ${name})
  endif()
  if(ARG_DEVICE_CHECKED)
    set_property(GLOBAL APPEND PROPERTY MAESTRO_DEVICE_CHECKED "$<TARGET_FILE:${name}> ${ARG_DEVICE_CHECKED}")
  endif()
endfunction()
