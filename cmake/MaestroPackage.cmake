# SPDX-License-Identifier: Apache-2.0
# Debian packages, by `./run package`: maestro (program, libmaestro.so, backends, jobs, completions, manual pages) and
# libmaestro-dev (headers, static libraries and the CMake package, for other programs and plug-ins).
if(NOT MAESTRO_INSTALL OR NOT TARGET maestro)
  return()
endif()

install(CODE "set(maestro_file [[$<TARGET_FILE:maestro>]])
set(maestro_version [[${PROJECT_VERSION}]])
set(maestro_prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")" COMPONENT program)
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/InstallProgramFiles.cmake" COMPONENT program)

# Texts that Debian's policy requires in each package.
string(TIMESTAMP maestro_package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(MAESTRO_PACKAGE_CONTACT "The maestro developers <maestro@localhost.localdomain>")
if(DEFINED ENV{DEBEMAIL})  # with DEBFULLNAME, as in Debian's tools: the package's maintainer
  set(MAESTRO_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(maestro_package_texts "${PROJECT_BINARY_DIR}/package")
configure_file(cmake/package/copyright.in "${maestro_package_texts}/copyright" @ONLY)
configure_file(cmake/package/changelog.in "${maestro_package_texts}/changelog" @ONLY)
find_program(maestro_gzip gzip)
if(maestro_gzip)
  execute_process(COMMAND "${maestro_gzip}" -9nfk changelog WORKING_DIRECTORY "${maestro_package_texts}"
    COMMAND_ERROR_IS_FATAL ANY)
endif()
foreach(part IN ITEMS "program:maestro" "development:libmaestro-dev")
  string(REGEX MATCH "^([a-z]+):(.*)$" matched "${part}")
  install(FILES "${maestro_package_texts}/copyright" DESTINATION share/doc/${CMAKE_MATCH_2}
    COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL)
  install(FILES "${maestro_package_texts}/changelog.gz" DESTINATION share/doc/${CMAKE_MATCH_2}
    COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL OPTIONAL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME maestro)
set(CPACK_PACKAGE_CONTACT "${MAESTRO_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib/maestro")  # libmaestro.so is in the package
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME maestro)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libfabric1)  # loaded on demand, so shlibdeps does not see it
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmaestro-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "maestro (= ${PROJECT_VERSION}), libcaf-dev, libfabric-dev, libdnnl-dev, nlohmann-json3-dev, \
libtomlplusplus-dev, libxxhash-dev, libonig-dev, libutf8proc-dev, libsentencepiece-dev, libarchive-dev, libpng-dev, \
libjpeg62-turbo-dev, libwebp-dev, libsndfile1-dev, zlib1g-dev, libsnappy-dev, libzstd-dev, liblz4-dev, libbrotli-dev, \
libthrift-dev, libboost-dev, libssl-dev, libcpp-httplib-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "cmake, g++, make | ninja-build")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Trains several models together, such as a frozen teacher and a student, or a
vision encoder and a language model. Each section of a job is an actor with a
layout of its own; work is handed out as a wavefront of messages, and tensors
move by one-sided writes.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, static libraries and the CMake package of maestro, for programs
and plug-ins with section types or apps of their own.")
include(CPack)
