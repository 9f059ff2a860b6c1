# SPDX-License-Identifier: Apache-2.0
# Debian's libthrift-dev ships headers, a library and a pkg-config file, no CMake package; thrift-compiler has the
# program. The headers include some of Boost's. Targets: Thrift::thrift. Variables: Thrift_COMPILER, empty if it is
# missing.
find_path(Thrift_INCLUDE_DIR thrift/Thrift.h)
find_path(Thrift_Boost_INCLUDE_DIR boost/numeric/conversion/cast.hpp)
find_library(Thrift_LIBRARY thrift)
find_program(Thrift_COMPILER thrift)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Thrift REQUIRED_VARS Thrift_LIBRARY Thrift_INCLUDE_DIR Thrift_Boost_INCLUDE_DIR)
if(Thrift_FOUND AND NOT TARGET Thrift::thrift)
  add_library(Thrift::thrift UNKNOWN IMPORTED)
  set_target_properties(Thrift::thrift PROPERTIES
    IMPORTED_LOCATION "${Thrift_LIBRARY}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Thrift_INCLUDE_DIR};${Thrift_Boost_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${Thrift_INCLUDE_DIR};${Thrift_Boost_INCLUDE_DIR}")
endif()
