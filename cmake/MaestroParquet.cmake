# SPDX-License-Identifier: Apache-2.0
# libmaestro_parquet.so: rows of Parquet files, by the libraries of pyarrow's wheel.
# Optional. The wheel belongs to python3, or PYARROW_ROOT (a CMake or environment variable) names an unpacked wheel.
set(MAESTRO_PARQUET AUTO CACHE STRING "Parquet by pyarrow's libraries: AUTO (where pyarrow is found), ON or OFF")
set_property(CACHE MAESTRO_PARQUET PROPERTY STRINGS AUTO ON OFF)

# Sets `out` to the wheel's folder "pyarrow", or to nothing if the wheel is missing.
function(maestro_find_pyarrow out)
  set(${out} "" PARENT_SCOPE)
  foreach(root IN ITEMS "${PYARROW_ROOT}" "$ENV{PYARROW_ROOT}")
    if(root AND EXISTS "${root}/pyarrow/include/parquet/arrow/reader.h")
      set(${out} "${root}/pyarrow" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    return()
  endif()
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import os, pyarrow; print(os.path.dirname(pyarrow.__file__), end='')"
    OUTPUT_VARIABLE folder RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed AND EXISTS "${folder}/include/parquet/arrow/reader.h")
    set(${out} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

# Defines maestro_parquet if pyarrow is found.
function(maestro_add_parquet)
  if(MAESTRO_PARQUET STREQUAL "OFF" OR MAESTRO_SANITIZE)  # sanitizers refuse RTLD_DEEPBIND
    return()
  endif()
  maestro_find_pyarrow(folder)
  file(GLOB arrow "${folder}/libarrow.so.*")
  file(GLOB parquet "${folder}/libparquet.so.*")
  if(NOT folder OR NOT arrow OR NOT parquet)
    if(MAESTRO_PARQUET STREQUAL "ON")
      message(FATAL_ERROR "MAESTRO_PARQUET=ON needs pyarrow: pip install pyarrow, or name an unpacked wheel in PYARROW_ROOT")
    endif()
    message(STATUS "Parquet: no pyarrow; files in this format are refused")
    return()
  endif()
  message(STATUS "Parquet: libraries of ${folder}")
  add_library(maestro_parquet MODULE "${PROJECT_SOURCE_DIR}/runtime/dataset/parquet/module.cpp")
  target_include_directories(maestro_parquet PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(maestro_parquet SYSTEM PRIVATE "${folder}/include")
  target_link_libraries(maestro_parquet PRIVATE maestro_flags nlohmann_json::nlohmann_json "${arrow}" "${parquet}")
  set_target_properties(maestro_parquet PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/maestro"
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON BUILD_RPATH "${folder}" INSTALL_RPATH "${folder}")
endfunction()
