# SPDX-License-Identifier: Apache-2.0
# The CUDA backend: MAESTRO_CUDA, its requirements, and helpers for its rooms. Sets MAESTRO_CUDA_FOUND and, if that
# is false, MAESTRO_CUDA_MISSING: the reason, worded for "this build has no CUDA backend (...)".
#
# The backend is a module, libmaestro_cuda.so, that the program loads if a driver is present; only the backend links
# CUDA. Its rooms (runtime/*/cuda) are static libraries made by maestro_cuda_room(). They are not in MAESTRO_ROOMS, so
# that neither the installed package nor programs built on it depend on the toolkit.
#
# CMAKE_CUDA_ARCHITECTURES, CUDAToolkit_ROOT, CUDNN_ROOT, NCCL_ROOT and CUBLASLT_ROOT are left to the user.
set(MAESTRO_CUDA AUTO CACHE STRING "The CUDA backend: AUTO (where all it needs is found), ON (an error where not), OFF")
set_property(CACHE MAESTRO_CUDA PROPERTY STRINGS AUTO ON OFF)

set(maestro_least_nvcc 12.4)      # C++20 device code, green contexts
set(maestro_least_cudnn 9)        # the graph interface, which attention uses
set(maestro_least_nccl 21400)     # 2.14: communicators that never block

find_package(CUDAToolkit QUIET)
include(MaestroCudaLibraries)

# Sets `missing` in the caller: the reason why nvcc cannot be used, or nothing.
function(maestro_find_nvcc)
  find_program(MAESTRO_NVCC nvcc HINTS "${CUDAToolkit_BIN_DIR}" ENV CUDA_PATH ENV CUDA_HOME
    PATHS /usr/local/cuda/bin PATH_SUFFIXES bin)
  mark_as_advanced(MAESTRO_NVCC)
  if(CMAKE_CUDA_COMPILER)
    set(MAESTRO_NVCC "${CMAKE_CUDA_COMPILER}")
  elseif(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(MAESTRO_NVCC "$ENV{CUDACXX}")
  endif()
  set(missing "CMake found no nvcc" PARENT_SCOPE)
  if(NOT MAESTRO_NVCC)
    return()
  endif()
  execute_process(COMMAND "${MAESTRO_NVCC}" --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE status)
  set(version 0)
  if(text MATCHES "release [0-9.]+, V([0-9.]+)")
    set(version "${CMAKE_MATCH_1}")
  endif()
  if(version VERSION_LESS maestro_least_nvcc)
    set(missing "nvcc ${maestro_least_nvcc} or newer is needed; ${MAESTRO_NVCC} is ${version}" PARENT_SCOPE)
    return()
  endif()
  set(ENV{CUDACXX} "${MAESTRO_NVCC}")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(missing "${MAESTRO_NVCC} compiles nothing here; see CMakeFiles/CMakeError.log" PARENT_SCOPE)
    return()
  endif()
  set(missing "" PARENT_SCOPE)
endfunction()

function(maestro_find_cuda)
  if(MAESTRO_SANITIZE)
    set(missing "built with sanitizers, which do not go with nvcc")
  else()
    maestro_find_nvcc()
  endif()
  if(NOT missing)
    if(NOT TARGET CUDA::cudart_static)
      set(missing "CMake found no static CUDA runtime (libcudart_static.a) beside nvcc")
    elseif(NOT maestro_cublasLt_version)
      set(missing "CMake found no cuBLASLt; give its folder as CUBLASLT_ROOT")
    elseif(NOT maestro_cudnn_version OR maestro_cudnn_version LESS maestro_least_cudnn)
      set(missing "CMake found no cuDNN ${maestro_least_cudnn} or newer; give its folder as CUDNN_ROOT")
    elseif(NOT maestro_nccl_version OR maestro_nccl_version LESS maestro_least_nccl)
      set(missing "CMake found no NCCL 2.14 or newer; give its folder as NCCL_ROOT")
    endif()
  endif()
  set(missing "${missing}" PARENT_SCOPE)
endfunction()

# Machine code for current generations, and PTX of the newest, which later devices compile at start.
function(maestro_choose_architectures)
  if(CMAKE_CUDA_ARCHITECTURES OR NOT "$ENV{CUDAARCHS}" STREQUAL "")
    return()
  endif()
  execute_process(COMMAND "$ENV{CUDACXX}" --list-gpu-code OUTPUT_VARIABLE codes ERROR_QUIET)
  if(codes MATCHES "sm_100")
    set(architectures 80-real 90-real 100)
  else()
    set(architectures 80-real 90)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "CUDA architectures")
endfunction()

set(missing)
if(MAESTRO_CUDA STREQUAL "AUTO" OR MAESTRO_CUDA)
  maestro_find_cuda()
else()
  set(missing "built with MAESTRO_CUDA=OFF; MAESTRO_CUDA=ON ./run builds it")
endif()
set(MAESTRO_CUDA_MISSING "${missing}")
if(missing)
  set(MAESTRO_CUDA_FOUND FALSE)
  if(NOT MAESTRO_CUDA STREQUAL "AUTO" AND MAESTRO_CUDA)
    message(FATAL_ERROR "MAESTRO_CUDA=ON, but: ${missing}")
  endif()
  message(STATUS "CUDA backend: left out (${missing})")
else()
  set(MAESTRO_CUDA_FOUND TRUE)
  maestro_choose_architectures()
  if(MAESTRO_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${MAESTRO_CCACHE}")
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.25.2 does not detect it in nvcc 12
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, cuBLAS ${maestro_cublasLt_version}, cuDNN "
    "${maestro_cudnn_version}, NCCL ${maestro_nccl_version}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# Host warnings of .cu files without -Wpedantic: nvcc's output is not pedantic.
add_library(maestro_cuda_flags INTERFACE)
target_compile_options(maestro_cuda_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall,-Wextra,-Wshadow>")
if(MAESTRO_WERROR)
  target_compile_options(maestro_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()

# maestro_cuda_room(NAME SOURCES ... DEPENDS ... [PRIVATE_DEPENDS ...])
# Adds a room of the backend: a static library `maestro_NAME` of .cpp and .cu files. libmaestro_cuda.so hides their
# names. The room has the CUDA headers and, statically, the CUDA runtime; include paths begin at the root, as in other
# rooms.
function(maestro_cuda_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(maestro_${name} STATIC ${ARG_SOURCES})
  set_target_properties(maestro_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(maestro_${name} PUBLIC cxx_std_20)
  target_include_directories(maestro_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(maestro_${name} PUBLIC ${ARG_DEPENDS} CUDA::cudart_static
    PRIVATE maestro_flags maestro_cuda_flags ${ARG_PRIVATE_DEPENDS})
endfunction()
