# SPDX-License-Identifier: Apache-2.0
# Writes the files of share/new as C++ (apps/maestro/help/template_files.hpp) to `out`.
function(maestro_template_source out)
  set(folder "${PROJECT_SOURCE_DIR}/share/new")
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/*.in")
  set(entries)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/${file}")
    file(READ "${folder}/${file}" text)
    string(REGEX MATCH "^([^/]+)/(.+)[.]in$" matched "${file}")
    string(APPEND entries "    {\"${CMAKE_MATCH_1}\", \"${CMAKE_MATCH_2}\", R\"maestro_new(${text})maestro_new\"},\n")
  endforeach()
  string(CONCAT source
    "// Made by cmake/MaestroTemplates.cmake.\n#include \"apps/maestro/help/template_files.hpp\"\n\nnamespace maestro {\n\n"
    "std::span<const TemplateFile> template_files() {\n  static constexpr TemplateFile files[] = {\n${entries}  };\n"
    "  return files;\n}\n\n}  // namespace maestro\n")
  set(${out} "${PROJECT_BINARY_DIR}/generated/template_files.cpp")
  file(CONFIGURE OUTPUT "${${out}}" CONTENT "@source@" @ONLY)
  set(${out} "${${out}}" PARENT_SCOPE)
endfunction()
