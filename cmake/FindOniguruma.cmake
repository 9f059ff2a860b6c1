# SPDX-License-Identifier: Apache-2.0
# Oniguruma's header, and the file name for opening its shared library at run time (ONIGURUMA_LIBRARY_NAME). Programs
# must not link it: it exports regcomp() and regexec(), which would replace the C library's.
find_path(Oniguruma_INCLUDE_DIR oniguruma.h)
find_library(Oniguruma_LIBRARY onig)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Oniguruma REQUIRED_VARS Oniguruma_LIBRARY Oniguruma_INCLUDE_DIR)
if(Oniguruma_FOUND AND NOT TARGET Oniguruma::headers)
  get_filename_component(library "${Oniguruma_LIBRARY}" REALPATH)
  get_filename_component(library "${library}" NAME)
  string(REGEX REPLACE "(\\.so\\.[0-9]+).*" "\\1" library "${library}")
  add_library(Oniguruma::headers INTERFACE IMPORTED)
  set_target_properties(Oniguruma::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Oniguruma_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "ONIGURUMA_LIBRARY_NAME=\"${library}\"")
endif()
