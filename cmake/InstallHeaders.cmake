# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the headers of include/maestro, and below detail/ those that they include, however
# deep. Includes are rewritten to <maestro/...>, so that no installed name can collide with another project's.
# Variables: source (root of the repository), destination (the folder include/maestro of the installation).

cmake_minimum_required(VERSION 3.25)

# Adds the headers that `text` names to `wanted`, and rewrites their includes in `text`.
macro(maestro_rewrite_includes)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${include}")
    list(APPEND wanted "${included}")
  endforeach()
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <maestro/detail/\\1>" text "${text}")
endmacro()

function(maestro_install_headers source destination)
  set(wanted)
  file(GLOB faces RELATIVE "${source}/include/maestro" "${source}/include/maestro/*.hpp")
  foreach(face IN LISTS faces)
    file(READ "${source}/include/maestro/${face}" text)
    maestro_rewrite_includes()
    file(WRITE "${destination}/${face}" "${text}")
  endforeach()
  set(installed)
  while(wanted)
    list(POP_FRONT wanted path)
    if(path IN_LIST installed)
      continue()
    endif()
    list(APPEND installed "${path}")
    file(READ "${source}/${path}" text)
    maestro_rewrite_includes()
    file(WRITE "${destination}/detail/${path}" "${text}")
  endwhile()
endfunction()

maestro_install_headers("${source}" "${destination}")
