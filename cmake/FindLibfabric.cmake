# SPDX-License-Identifier: Apache-2.0
# Debian's libfabric-dev ships a header and a library, no CMake package.
find_path(Libfabric_INCLUDE_DIR rdma/fabric.h)
find_library(Libfabric_LIBRARY fabric)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libfabric REQUIRED_VARS Libfabric_LIBRARY Libfabric_INCLUDE_DIR)
if(Libfabric_FOUND AND NOT TARGET Libfabric::fabric)
  add_library(Libfabric::fabric UNKNOWN IMPORTED)
  set_target_properties(Libfabric::fabric PROPERTIES
    IMPORTED_LOCATION "${Libfabric_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Libfabric_INCLUDE_DIR}")
endif()
