# SPDX-License-Identifier: Apache-2.0
# All rooms in one target: maestro::maestro (static) and maestro::shared (libmaestro.so, a single copy for program and
# plug-ins). maestro_room() adds rooms to the global property MAESTRO_ROOMS.
get_property(maestro_rooms GLOBAL PROPERTY MAESTRO_ROOMS)

add_library(maestro_all INTERFACE)
add_library(maestro::maestro ALIAS maestro_all)
set_target_properties(maestro_all PROPERTIES EXPORT_NAME maestro)
target_link_libraries(maestro_all INTERFACE ${maestro_rooms})
target_include_directories(maestro_all INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
if(NOT MAESTRO_ACTORS)
  return()
endif()

# Links every object of every room, so rooms that define the same name do not link. Rooms are named by file, not as
# targets: CMake refuses to link a target completely here if it is also a dependency of another target.
set(maestro_archives)
set(maestro_includes)
foreach(room IN LISTS maestro_rooms)
  get_target_property(kind ${room} TYPE)
  if(kind STREQUAL "STATIC_LIBRARY")
    list(APPEND maestro_archives "$<TARGET_FILE:${room}>")
  endif()
  list(APPEND maestro_includes "$<TARGET_PROPERTY:${room},INTERFACE_INCLUDE_DIRECTORIES>")
endforeach()
list(REMOVE_DUPLICATES maestro_includes)
set(maestro_exports "${CMAKE_CURRENT_LIST_DIR}/maestro_exports.map")
add_library(maestro_shared SHARED "${maestro_exports}")
add_library(maestro::shared ALIAS maestro_shared)
set_target_properties(maestro_shared PROPERTIES OUTPUT_NAME maestro EXPORT_NAME shared LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/maestro" LINK_DEPENDS "${maestro_exports}")
target_link_libraries(maestro_shared PRIVATE maestro_flags
  "-Wl,--whole-archive" ${maestro_archives} "-Wl,--no-whole-archive" maestro_all)
target_link_options(maestro_shared PRIVATE "LINKER:--version-script=${maestro_exports},-Bsymbolic-functions")
target_compile_features(maestro_shared INTERFACE cxx_std_20)
target_compile_definitions(maestro_shared INTERFACE "$<INSTALL_INTERFACE:${MAESTRO_INTERFACE}>")
target_include_directories(maestro_shared INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}/include;${maestro_includes}>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
