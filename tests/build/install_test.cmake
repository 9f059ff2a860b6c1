# Installs the build to an empty prefix, then configures, builds and runs the project in outside/ against it.
# Variables: BUILD_DIR, OUTSIDE_DIR, WORK_DIR (wiped first), CXX, CXX_FLAGS, BUILD_TYPE.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(require_installed)
  foreach(path IN LISTS ARGN)
    if(NOT EXISTS "${prefix}/${path}")
      message(FATAL_ERROR "the installation lacks ${path}")
    endif()
  endforeach()
endfunction()

# A space in the prefix finds unquoted paths; the move after the installation finds absolute ones.
set(first "${WORK_DIR}/first prefix")
set(prefix "${WORK_DIR}/second prefix")
file(REMOVE_RECURSE "${WORK_DIR}")
run("installation" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${first}")
file(RENAME "${first}" "${prefix}")
require_installed(include/maestro/runtime/core/tensor.hpp)

if(EXISTS "${BUILD_DIR}/bin/maestro")
  require_installed(bin/maestro share/maestro/jobs)
  run("the installed program" "${prefix}/bin/maestro" --help)
endif()

run("configuration of the outside project" "${CMAKE_COMMAND}" -S "${OUTSIDE_DIR}" -B "${WORK_DIR}/build" -G Ninja
  "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
  "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}")
run("build of the outside project" "${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("the program that uses one room" "${WORK_DIR}/build/core_only")
run("the outside app" "${WORK_DIR}/build/app")
message(STATUS "${output}")
