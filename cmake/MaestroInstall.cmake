# SPDX-License-Identifier: Apache-2.0
# Files of `cmake --install`, and the package for outside projects:
#   lib/maestro/libmaestro.so  the code of program and plug-ins (not a stable interface, so in a separate folder)
#   lib/maestro/libmaestro_cuda.so, if it is built
#   include/maestro/*.hpp      the public headers, and below detail/ the headers that they include
#   lib/libmaestro_<room>.a    bin/maestro    share/maestro/jobs/<app>/*.toml, and the texts of distill
#   share/bash-completion, zsh, fish, man   completions and manual pages (InstallProgramFiles.cmake)
#   share/maestro/             dashboard, alerts, and files for schedulers (docs/operations.md)
#   lib/cmake/maestro          maestroConfig.cmake, its version, targets and Find modules
#   lib/pkgconfig/maestro.pc   the same for builds without CMake
include(CMakePackageConfigHelpers)

if(NOT MAESTRO_INSTALL)
  return()
endif()

set(maestro_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/maestro")

install(TARGETS maestro_all ${maestro_rooms} EXPORT maestroTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT development)
install(EXPORT maestroTargets NAMESPACE maestro:: DESTINATION "${maestro_package_dir}" COMPONENT development)
if(TARGET maestro)
  set_target_properties(maestro PROPERTIES EXPORT_NAME program)
  install(TARGETS maestro EXPORT maestroTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
  install(TARGETS maestro_shared EXPORT maestroTargets LIBRARY DESTINATION lib/maestro COMPONENT program)
endif()

if(TARGET maestro_cuda)  # the program looks for it in ../lib/maestro (runtime/device/backend.hpp)
  install(TARGETS maestro_cuda LIBRARY DESTINATION lib/maestro COMPONENT program)
endif()

install(CODE "set(source [[${PROJECT_SOURCE_DIR}]])
set(destination \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/maestro\")" COMPONENT development)
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/InstallHeaders.cmake" COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/apps/distill" "${PROJECT_SOURCE_DIR}/apps/graph" "${PROJECT_SOURCE_DIR}/apps/vlm"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/maestro/jobs" COMPONENT program
  FILES_MATCHING PATTERN "*.toml" PATTERN "texts/*.txt" PATTERN "README.md")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/share/maestro/" DESTINATION "${CMAKE_INSTALL_DATADIR}/maestro"
  COMPONENT program PATTERN "tests" EXCLUDE PATTERN "*.sh" PERMISSIONS  # not the clone's, which follow its umask
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/maestroConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/maestroConfig.cmake"
  INSTALL_DESTINATION "${maestro_package_dir}" PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/maestroConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
file(GLOB maestro_find_modules CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/Find*.cmake")
install(FILES "${PROJECT_BINARY_DIR}/maestroConfig.cmake" "${PROJECT_BINARY_DIR}/maestroConfigVersion.cmake"
  ${maestro_find_modules} DESTINATION "${maestro_package_dir}" COMPONENT development)

# pkg-config. Dependencies without a pkg-config file are named as libraries.
set(maestro_pc_rooms)
foreach(room IN LISTS maestro_rooms)
  get_target_property(kind ${room} TYPE)
  if(kind STREQUAL "STATIC_LIBRARY")
    list(APPEND maestro_pc_rooms "-l${room}")
  endif()
endforeach()
set(maestro_pc_requires "libxxhash libutf8proc sentencepiece libarchive tomlplusplus libpng libjpeg libwebp sndfile")
set(maestro_pc_others "-ldnnl -lgomp")
if(MAESTRO_ACTORS)
  string(APPEND maestro_pc_requires " thrift snappy libzstd liblz4 libbrotlidec zlib cpp-httplib openssl")
  string(PREPEND maestro_pc_others "-lcaf_io -lcaf_core ")
endif()
list(JOIN maestro_pc_rooms " " maestro_pc_rooms)
file(RELATIVE_PATH maestro_prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/maestro.pc.in "${PROJECT_BINARY_DIR}/maestro.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/maestro.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
