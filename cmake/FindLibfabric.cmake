# SPDX-License-Identifier: Apache-2.0
# Debian's libfabric-dev ships headers and a library, no CMake package. The library is loaded when it is needed: the
# target Libfabric::headers has the headers alone, and Libfabric_SONAME is the library's name.
find_path(Libfabric_INCLUDE_DIR rdma/fabric.h)
find_library(Libfabric_LIBRARY fabric)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libfabric REQUIRED_VARS Libfabric_LIBRARY Libfabric_INCLUDE_DIR)
if(Libfabric_FOUND)
  set(Libfabric_SONAME libfabric.so.1)
endif()
if(Libfabric_FOUND AND NOT TARGET Libfabric::headers)
  add_library(Libfabric::headers INTERFACE IMPORTED)
  set_target_properties(Libfabric::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Libfabric_INCLUDE_DIR}")
endif()
