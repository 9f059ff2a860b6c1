# SPDX-License-Identifier: Apache-2.0
# Language level, warnings and the options that a user may set.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Inside another project (add_subdirectory, FetchContent) that project's targets see the dependencies' targets, too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

option(MAESTRO_ACTORS "The program: actors, transport, apps. OFF: runtime and sections, for bare GPU machines" ON)
set(MAESTRO_DEPS "" CACHE PATH "Folder of unpacked packages (./run gpu-deps) to look for dependencies in first")
if(MAESTRO_DEPS)
  list(PREPEND CMAKE_PREFIX_PATH "${MAESTRO_DEPS}/usr")
  add_link_options(LINKER:--disable-new-dtags)  # the search path also applies to libraries that libraries need
endif()
option(MAESTRO_BUILD_TESTS "Build the test suite" ${PROJECT_IS_TOP_LEVEL})
option(MAESTRO_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(MAESTRO_INSTALL "Create the install rules" ${PROJECT_IS_TOP_LEVEL})
if(NOT MAESTRO_ACTORS)
  set(MAESTRO_INSTALL OFF)  # the package belongs to the program
endif()
# Warnings are errors only with the compilers that check the project; others may have more warnings.
set(maestro_werror OFF)
if(PROJECT_IS_TOP_LEVEL AND "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  set(maestro_werror ON)
endif()
option(MAESTRO_WERROR "Treat warnings as errors" ${maestro_werror})
option(MAESTRO_UNITY "Compile sources that include long headers several at a time. OFF: each alone, for work on them" ON)
option(MAESTRO_FUZZ "Instrument everything for libFuzzer and build the fuzzers of tests/fuzz (clang)" OFF)
set(MAESTRO_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

find_program(MAESTRO_CCACHE ccache)
if(MAESTRO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache accepts precompiled headers only if it may ignore macros and times in them.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "${MAESTRO_CCACHE}")
endif()

add_library(maestro_flags INTERFACE)
target_compile_features(maestro_flags INTERFACE cxx_std_20)
target_compile_options(maestro_flags INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wnon-virtual-dtor>>"
  "$<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>>:-Wshadow>>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc bug 105651: `"text" + std::string` is reported as overlapping memory.
  target_compile_options(maestro_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>>")
endif()
if(MAESTRO_WERROR)
  target_compile_options(maestro_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Werror>>")
endif()

include(MaestroSanitizers)
