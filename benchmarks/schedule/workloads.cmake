# SPDX-License-Identifier: Apache-2.0
# Generated workloads and exhaustive search on small workloads, for the benchmark and for the tests of the wavefront
# room, because each may be built without the other.
include_guard(GLOBAL)
add_library(maestro_workloads STATIC "${CMAKE_CURRENT_LIST_DIR}/exhaustive.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/workload_generator.cpp")
target_link_libraries(maestro_workloads PUBLIC maestro::wavefront PRIVATE maestro_flags)
