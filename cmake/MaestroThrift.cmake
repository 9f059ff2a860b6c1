# SPDX-License-Identifier: Apache-2.0
# maestro_thrift(ROOM FILE SERVICE...): generates C++ for a Thrift file at build time and compiles it into a room's
# library. FILE is relative to the caller. Its headers are included as "<folder of FILE>/<name>_types.h" and "<folder of
# FILE>/<Service>.h", from the root of the repository. These headers are not public.
function(maestro_thrift room file)
  if(NOT Thrift_COMPILER)
    message(FATAL_ERROR "The Thrift compiler is missing (Debian: thrift-compiler)")
  endif()
  get_filename_component(name "${file}" NAME_WE)
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${source}")
  get_filename_component(folder "${PROJECT_BINARY_DIR}/generated/${path}" DIRECTORY)
  set(generated)
  foreach(stem IN ITEMS ${name}_types ${ARGN})
    list(APPEND generated "${folder}/${stem}.cpp" "${folder}/${stem}.h")
  endforeach()
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT ${generated}
    COMMAND "${Thrift_COMPILER}" --gen cpp:no_skeleton -out "${folder}" "${source}"
    DEPENDS "${source}" VERBATIM COMMENT "Making C++ of ${path}")
  set_source_files_properties(${generated} PROPERTIES COMPILE_OPTIONS -w SKIP_LINTING ON)
  target_sources(maestro_${room} PRIVATE ${generated})
  target_include_directories(maestro_${room} SYSTEM PRIVATE "${PROJECT_BINARY_DIR}/generated")
endfunction()
