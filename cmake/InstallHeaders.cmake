# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the headers of include/maestro, and below detail/ all headers that they include,
# directly or not. Includes are rewritten to <maestro/...>, so that installed names cannot collide with other projects'.
# Variables: source (the repository's root), destination (the installation's folder include/maestro).

cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/MaestroHeaders.cmake")

maestro_public_headers("${source}" headers)
foreach(path IN LISTS headers)
  file(READ "${source}/${path}" text)
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <maestro/detail/\\1>" text "${text}")
  if(NOT path MATCHES "^include/maestro/")
    set(path "include/maestro/detail/${path}")
  endif()
  string(REGEX REPLACE "^include/maestro/" "" path "${path}")
  file(WRITE "${destination}/${path}" "${text}")
endforeach()
