# SPDX-License-Identifier: Apache-2.0
# Debian's libcaf-dev 0.17.6 ships headers and libraries, no CMake package.
# Components: core (always), io, openssl. Targets: CAF::core, CAF::io, CAF::openssl.
find_path(CAF_INCLUDE_DIR caf/all.hpp)
foreach(component core ${CAF_FIND_COMPONENTS})
  find_library(CAF_${component}_LIBRARY caf_${component})
  if(CAF_${component}_LIBRARY AND NOT TARGET CAF::${component})
    add_library(CAF::${component} UNKNOWN IMPORTED)
    set_target_properties(CAF::${component} PROPERTIES
      IMPORTED_LOCATION "${CAF_${component}_LIBRARY}"
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
      INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
    if(NOT component STREQUAL "core")
      set_property(TARGET CAF::${component} APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::core)
    endif()
  endif()
  if(CAF_${component}_LIBRARY)
    set(CAF_${component}_FOUND TRUE)
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF REQUIRED_VARS CAF_core_LIBRARY CAF_INCLUDE_DIR HANDLE_COMPONENTS)
