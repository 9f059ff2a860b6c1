# SPDX-License-Identifier: Apache-2.0
# Libraries of the CUDA backend apart from the toolkit's compiler: cuBLASLt, cuDNN and NCCL, as imported targets
# maestro_cuda::cublasLt, maestro_cuda::cudnn and maestro_cuda::nccl. CMake searches the toolkit, the system (Debian,
# the CUDA repository), the folders CUBLASLT_ROOT, CUDNN_ROOT and NCCL_ROOT, and the packages that pip installs
# (nvidia-cublas, nvidia-cudnn-cu13, nvidia-nccl-cu13), whose file names all contain a version.

set(maestro_cuda_hints ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR})
if(NOT DEFINED MAESTRO_PIP_CUDA_FOLDERS)
  find_program(maestro_python3 python3)
  mark_as_advanced(maestro_python3)
  set(folders)
  if(maestro_python3)
    execute_process(COMMAND "${maestro_python3}" -c "import nvidia; print(';'.join(nvidia.__path__))"
      OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    foreach(folder IN LISTS packages)
      file(GLOB found LIST_DIRECTORIES TRUE "${folder}/*")
      list(APPEND folders ${found})
    endforeach()
  endif()
  set(MAESTRO_PIP_CUDA_FOLDERS "${folders}" CACHE INTERNAL "Folders of pip's nvidia packages")
endif()

# maestro_cuda_library(NAME HEADER FILE LIBRARIES NAME... VERSION EXPRESSION): VERSION is a regular expression with a
# group that matches the version number in the first existing header of VERSION_HEADERS. Sets maestro_NAME_version in
# the caller, empty if the library is missing.
function(maestro_cuda_library name)
  cmake_parse_arguments(ARG "" "HEADER;VERSION;VERSION_HEADER" "LIBRARIES" ${ARGN})
  string(TOUPPER "${name}" upper)
  set(roots "${${upper}_ROOT}" "$ENV{${upper}_ROOT}" ${maestro_cuda_hints})
  find_path(${upper}_INCLUDE_DIR ${ARG_HEADER}
    HINTS ${roots} ${CUDAToolkit_INCLUDE_DIRS} PATHS ${MAESTRO_PIP_CUDA_FOLDERS} PATH_SUFFIXES include)
  find_library(${upper}_LIBRARY NAMES ${ARG_LIBRARIES}
    HINTS ${roots} "${CUDAToolkit_LIBRARY_DIR}" PATHS ${MAESTRO_PIP_CUDA_FOLDERS} PATH_SUFFIXES lib lib64)
  mark_as_advanced(${upper}_INCLUDE_DIR ${upper}_LIBRARY)
  set(version)
  if(${upper}_LIBRARY AND EXISTS "${${upper}_INCLUDE_DIR}/${ARG_VERSION_HEADER}")
    file(STRINGS "${${upper}_INCLUDE_DIR}/${ARG_VERSION_HEADER}" line REGEX "${ARG_VERSION}" LIMIT_COUNT 1)
    if(line MATCHES "${ARG_VERSION}")
      set(version "${CMAKE_MATCH_1}")
    endif()
    if(NOT TARGET maestro_cuda::${name})
      add_library(maestro_cuda::${name} UNKNOWN IMPORTED GLOBAL)
      set_target_properties(maestro_cuda::${name} PROPERTIES IMPORTED_LOCATION "${${upper}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${${upper}_INCLUDE_DIR}"
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${${upper}_INCLUDE_DIR}")
    endif()
  endif()
  set(maestro_${name}_version "${version}" PARENT_SCOPE)
endfunction()

maestro_cuda_library(cublasLt HEADER cublasLt.h LIBRARIES cublasLt libcublasLt.so.13 libcublasLt.so.12
  VERSION_HEADER cublas_api.h VERSION "^#define CUBLAS_VER_MAJOR +([0-9]+)")
maestro_cuda_library(cudnn HEADER cudnn.h LIBRARIES cudnn libcudnn.so.9
  VERSION_HEADER cudnn_version.h VERSION "^#define CUDNN_MAJOR +([0-9]+)")
maestro_cuda_library(nccl HEADER nccl.h LIBRARIES nccl libnccl.so.2
  VERSION_HEADER nccl.h VERSION "^#define NCCL_VERSION_CODE +([0-9]+)")
