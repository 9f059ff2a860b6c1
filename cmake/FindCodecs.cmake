# SPDX-License-Identifier: Apache-2.0
# Libraries that decompress pages of Parquet files, as a target Codecs::codecs: snappy, zstd, lz4 and brotli. Debian's
# packages for them (libsnappy-dev, libzstd-dev, liblz4-dev, libbrotli-dev) ship few CMake packages.
set(codecs_required)
foreach(codec IN ITEMS snappy:snappy.h zstd:zstd.h lz4:lz4.h brotlidec:brotli/decode.h)
  string(REGEX MATCH "^([a-z0-9]+):(.*)$" matched "${codec}")
  find_path(Codecs_${CMAKE_MATCH_1}_INCLUDE_DIR ${CMAKE_MATCH_2})
  find_library(Codecs_${CMAKE_MATCH_1}_LIBRARY ${CMAKE_MATCH_1})
  list(APPEND codecs_required Codecs_${CMAKE_MATCH_1}_LIBRARY Codecs_${CMAKE_MATCH_1}_INCLUDE_DIR)
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Codecs REQUIRED_VARS ${codecs_required})
if(Codecs_FOUND AND NOT TARGET Codecs::codecs)
  add_library(Codecs::codecs INTERFACE IMPORTED)
  foreach(codec IN ITEMS snappy zstd lz4 brotlidec)
    set_property(TARGET Codecs::codecs APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${Codecs_${codec}_LIBRARY}")
    set_property(TARGET Codecs::codecs APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${Codecs_${codec}_INCLUDE_DIR}")
  endforeach()
endif()
