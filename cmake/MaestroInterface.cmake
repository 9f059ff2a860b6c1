# SPDX-License-Identifier: Apache-2.0
# MAESTRO_INTERFACE, a compile definition: version and digest of the public headers, which must be equal in plug-in and
# program (sections/plug_in/plug_in.hpp).
include(MaestroHeaders)
maestro_public_headers("${PROJECT_SOURCE_DIR}" maestro_headers)
set(maestro_digest)
foreach(header IN LISTS maestro_headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
  file(SHA256 "${PROJECT_SOURCE_DIR}/${header}" digest)
  string(SHA256 maestro_digest "${maestro_digest} ${header} ${digest}")
endforeach()
string(SUBSTRING "${maestro_digest}" 0 16 maestro_digest)
set(MAESTRO_INTERFACE "MAESTRO_INTERFACE=\"${PROJECT_VERSION} with headers ${maestro_digest}\"")
