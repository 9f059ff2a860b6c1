# SPDX-License-Identifier: Apache-2.0
# Headers of Debian's libfabric-dev, which ships no CMake package. transport/fabric loads the library itself.
find_path(Libfabric_INCLUDE_DIR rdma/fabric.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libfabric REQUIRED_VARS Libfabric_INCLUDE_DIR)
if(Libfabric_FOUND AND NOT TARGET Libfabric::headers)
  add_library(Libfabric::headers INTERFACE IMPORTED)
  set_target_properties(Libfabric::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Libfabric_INCLUDE_DIR}")
endif()
