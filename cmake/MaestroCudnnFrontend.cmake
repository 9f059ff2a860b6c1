# SPDX-License-Identifier: Apache-2.0
# cudnn-frontend: headers only, over cuDNN's graph interface. Sets CUDNN_FRONTEND_INCLUDE_DIR, empty if the headers are
# not found in the system, in the toolkit or in pip's package nvidia-cudnn-frontend: attention then works without them.
set(maestro_least_cudnn_frontend 1.14)  # the oldest version that is checked
find_program(maestro_python3 python3)
mark_as_advanced(maestro_python3)
set(maestro_pip_headers)
if(maestro_python3 AND NOT CUDNN_FRONTEND_INCLUDE_DIR)
  execute_process(
    COMMAND "${maestro_python3}" -c
      "from importlib.metadata import distribution as d; print(d('nvidia-cudnn-frontend').locate_file('include'))"
    OUTPUT_VARIABLE maestro_pip_headers OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
  HINTS "${CUDNN_FRONTEND_ROOT}" "$ENV{CUDNN_FRONTEND_ROOT}" "${maestro_pip_headers}" ${CUDAToolkit_INCLUDE_DIRS}
  PATH_SUFFIXES include)
mark_as_advanced(CUDNN_FRONTEND_INCLUDE_DIR)

set(maestro_cudnn_frontend_version 0)
if(CUDNN_FRONTEND_INCLUDE_DIR AND EXISTS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h")
  file(STRINGS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" lines
    REGEX "^#define CUDNN_FRONTEND_M[A-Z]+_VERSION +[0-9]+")
  list(TRANSFORM lines REPLACE "^[^0-9]*([0-9]+).*" "\\1")
  list(JOIN lines "." maestro_cudnn_frontend_version)
endif()
set(maestro_cudnn_frontend_missing)
if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  set(maestro_cudnn_frontend_missing "CMake found no cudnn_frontend.h; give its folder as CUDNN_FRONTEND_INCLUDE_DIR")
elseif(maestro_cudnn_frontend_version VERSION_LESS maestro_least_cudnn_frontend)
  string(CONCAT maestro_cudnn_frontend_missing "cudnn-frontend ${maestro_least_cudnn_frontend} or newer is needed; "
    "${CUDNN_FRONTEND_INCLUDE_DIR} has ${maestro_cudnn_frontend_version}")
elseif(NOT TARGET CUDA::nvrtc)
  set(maestro_cudnn_frontend_missing "CMake found no NVRTC, which cudnn-frontend needs")
endif()
if(maestro_cudnn_frontend_missing)
  set(CUDNN_FRONTEND_INCLUDE_DIR)  # for the including file; the cache keeps the user's value
  message(STATUS "Attention by cuDNN: left out (${maestro_cudnn_frontend_missing}); maestro's own kernels compute it")
else()
  message(STATUS "Attention by cuDNN: cudnn-frontend ${maestro_cudnn_frontend_version}")
endif()
