# SPDX-License-Identifier: Apache-2.0
# Installs the build to an empty prefix, then configures, builds and runs the project in outside/ against it, the sessions
# of docs/first-section.md and the bundled distillation.
# Variables: BUILD_DIR, OUTSIDE_DIR, WORK_DIR (wiped first), PYTHON, CXX, CXX_FLAGS, BUILD_TYPE.
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

# A space in the prefix detects unquoted paths; moving the installation detects absolute paths.
set(first "${WORK_DIR}/first prefix")
set(prefix "${WORK_DIR}/second prefix")
file(REMOVE_RECURSE "${WORK_DIR}")
run("installation" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${first}")
file(RENAME "${first}" "${prefix}")
require_installed(include/maestro/app.hpp include/maestro/detail/runtime/core/tensor.hpp)
file(GLOB_RECURSE headers "${prefix}/include/*")
foreach(header IN LISTS headers)
  file(STRINGS "${header}" relative REGEX "#include \"")
  if(relative OR NOT header MATCHES "/include/maestro/[a-z_]+[.]hpp$|/include/maestro/detail/.*[.]hpp$")
    message(FATAL_ERROR "the installation has a header that another project's could be taken for: ${header} ${relative}")
  endif()
endforeach()

if(EXISTS "${BUILD_DIR}/bin/maestro")
  require_installed(bin/maestro share/maestro/jobs share/maestro/alert-rules.yml)
  run("the installed program" "${prefix}/bin/maestro" --help)
endif()

function(build_outside folder into)
  run("configuration of ${folder}" "${CMAKE_COMMAND}" -S "${folder}" -B "${into}" -G Ninja
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
    "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}")
  run("build of ${folder}" "${CMAKE_COMMAND}" --build "${into}")
endfunction()

build_outside("${OUTSIDE_DIR}/one_room" "${WORK_DIR}/one room")
run("the program that uses one room" "${WORK_DIR}/one room/job_only")
build_outside("${OUTSIDE_DIR}" "${WORK_DIR}/build")

# Without CMake: maestro.pc has the header paths and every library that the app needs.
find_program(pkg_config pkg-config)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} "${prefix}/lib/pkgconfig")
  run("pkg-config" "${pkg_config}" --cflags --libs maestro)
  separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS} ${output}")
  run("compilation by pkg-config" "${CXX}" -std=c++20 "${OUTSIDE_DIR}/one_room/job_only.cpp" ${flags} -o "${WORK_DIR}/job_only")
  run("the program of pkg-config" "${WORK_DIR}/job_only")
  run("linking by pkg-config" "${CXX}" "${WORK_DIR}/build/CMakeFiles/app.dir/app.cpp.o" ${flags} -o "${WORK_DIR}/app")
endif()

# The app trains its section type for three steps, then in two processes: the validation loss is equal to the digit.
string(REPEAT "the quick brown fox jumps over the lazy dog\n" 400 text)
file(WRITE "${WORK_DIR}/text.txt" "${text}")
foreach(processes 1 2)
  run("the outside app, ${processes} processes" "${CMAKE_COMMAND}" -E chdir "${WORK_DIR}"
    "${WORK_DIR}/build/app" "${OUTSIDE_DIR}/job.toml" ${processes})
  if(NOT output MATCHES "model: validation ce ([0-9.]+)")
    message(FATAL_ERROR "the outside app reports no validation loss:\n${output}")
  endif()
  list(APPEND losses "${CMAKE_MATCH_1}")
endforeach()
list(REMOVE_DUPLICATES losses)
list(LENGTH losses distinct)
if(NOT distinct EQUAL 1)
  message(FATAL_ERROR "the outside app ends with other losses over two processes: ${losses}")
endif()
file(READ "${WORK_DIR}/report.json" report)
string(JSON steps LENGTH "${report}" steps)
if(NOT steps EQUAL 3)
  message(FATAL_ERROR "the outside app's report has ${steps} steps instead of 3:\n${report}")
endif()
if(NOT EXISTS "${WORK_DIR}/runs/bigram/checkpoints/step-00000003/model/model.safetensors")
  message(FATAL_ERROR "the outside app left no checkpoint:\n${output}")
endif()

# A new plug-in, as on the page for a first section; and the bundled distillation, without a repository.
if(NOT EXISTS "${prefix}/bin/maestro")
  return()
endif()
run("the page for a first section" "${CMAKE_COMMAND}" -E env "CXX=${CXX}" "CXXFLAGS=${CXX_FLAGS}" CMAKE_GENERATOR=Ninja
  "${PYTHON}" -B "${OUTSIDE_DIR}/../first_section_test.py" "${prefix}" "${WORK_DIR}/first section")
set(plug_in "${WORK_DIR}/first section/gated_bigram")
file(SIZE "${plug_in}/build/libgated_bigram.so" bytes)
if(bytes GREATER 4000000)  # the limit allows debug information; all rooms would take tens of megabytes
  message(FATAL_ERROR "the plug-in has ${bytes} bytes: it contains code of maestro")
endif()

unset(ENV{MAESTRO_REPOSITORY})
file(MAKE_DIRECTORY "${WORK_DIR}/distill")
run("the bundled distillation" "${CMAKE_COMMAND}" -E chdir "${WORK_DIR}/distill" "${prefix}/bin/maestro" distill
  --set train.steps=3 --set train.validation_samples=4 --teacher-set train.steps=3 --teacher-set train.validation_samples=4)
if(NOT output MATCHES "share/maestro/jobs/distill/texts: 2 text files [^\n]*: 1147971 tokens")
  message(FATAL_ERROR "the bundled distillation does not train on the installed texts:\n${output}")
endif()
if(NOT EXISTS "${WORK_DIR}/distill/runs/distill/card.html")
  message(FATAL_ERROR "the bundled distillation left no card:\n${output}")
endif()
