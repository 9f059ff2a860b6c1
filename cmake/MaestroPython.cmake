# SPDX-License-Identifier: Apache-2.0
# Builds the Python package of apps/python in the build folder, for its tests: build/release/python/maestro.
# apps/python/pyproject.toml builds wheels. Optional: nanobind belongs to python3, or NANOBIND_ROOT (a CMake or
# environment variable) names an unpacked wheel.
set(MAESTRO_PYTHON AUTO CACHE STRING "The Python package: AUTO (where nanobind and Python.h are found), ON or OFF")
set_property(CACHE MAESTRO_PYTHON PROPERTY STRINGS AUTO ON OFF)

# Sets `out` to the folder of nanobind's CMake files, or to nothing if nanobind is missing.
function(maestro_find_nanobind out)
  foreach(root IN ITEMS "${NANOBIND_ROOT}" "$ENV{NANOBIND_ROOT}")
    if(root AND EXISTS "${root}/nanobind/cmake/nanobind-config.cmake")
      set(NANOBIND_ROOT "${root}" CACHE PATH "The unpacked wheel of nanobind")  # for later configurations
      set(${out} "${root}/nanobind/cmake" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_VARIABLE folder RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    set(folder "")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

function(maestro_add_python)
  if(MAESTRO_PYTHON STREQUAL "OFF" OR MAESTRO_SANITIZE)  # the interpreter is built without sanitizers
    return()
  endif()
  set(Python_FIND_VIRTUALENV FIRST)
  find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
  set(folder "")
  if(Python_FOUND)
    maestro_find_nanobind(folder)
  endif()
  if(NOT folder)
    if(MAESTRO_PYTHON STREQUAL "ON")
      message(FATAL_ERROR "MAESTRO_PYTHON=ON needs Python.h (python3-dev) and nanobind: pip install nanobind, or name an "
        "unpacked wheel in NANOBIND_ROOT")
    endif()
    message(STATUS "Python package: no nanobind, or no Python.h; left out")
    return()
  endif()
  message(STATUS "Python package: nanobind of ${folder}")
  set(nanobind_ROOT "${folder}")
  add_subdirectory("${PROJECT_SOURCE_DIR}/apps/python" python_module)
endfunction()
