# SPDX-License-Identifier: Apache-2.0
# Debian's libcpp-httplib-dev ships a header, a library and a pkg-config file, no CMake package. The library was built
# with OpenSSL, which changes the layout of the header's classes.
find_path(Httplib_INCLUDE_DIR httplib.h)
find_library(Httplib_LIBRARY cpp-httplib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Httplib REQUIRED_VARS Httplib_LIBRARY Httplib_INCLUDE_DIR)
if(Httplib_FOUND AND NOT TARGET httplib::httplib)
  add_library(httplib::httplib UNKNOWN IMPORTED)
  set_target_properties(httplib::httplib PROPERTIES
    IMPORTED_LOCATION "${Httplib_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Httplib_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS CPPHTTPLIB_OPENSSL_SUPPORT)
endif()
