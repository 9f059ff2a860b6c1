# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# `run gpu-deps`, `run gpu-test` and `run gpu-bench`, for machines with a GPU and few packages (docs/gpu.md). Sourced by
# `run`; needs build.sh and packages.sh.
packages_for_gpu_tools=(g++:g++ cmake:cmake ninja-build:ninja python3:python3)
packages_for_gpu=(libdnnl-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev libonig-dev libutf8proc-dev libarchive-dev
                  libsentencepiece-dev libgtest-dev libgmock-dev)
# gpu-deps also fetches run-time dependencies, except these packages, which exist on any machine that can compile.
packages_of_any_compiler='^(libc6|libgcc-s1|libstdc\+\+6|gcc-[0-9]+-base|googletest|libcrypt1)$'
no_device_status=77
gpu_options=()  # CMake options, for configure()

# Fills a folder for a machine without network: package files, and cuDNN's frontend headers.
gpu_deps() {
  local folder=${1:-} names
  [[ -n $folder ]] || fail 2 "gpu-deps needs a folder to fill"
  mkdir -p "$folder"
  mapfile -t names < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "${packages_for_gpu[@]}" libgomp1 2>/dev/null |
    grep -E '^[a-z]' | sort -u | grep -vE "$packages_of_any_compiler")
  [[ ${#names[@]} -ge ${#packages_for_gpu[@]} ]] || fail 3 "apt has no package lists; run: apt-get update"
  (cd "$folder" && apt-get download "${names[@]}") >"$folder/download.log" 2>&1 ||
    { tail -n 5 "$folder/download.log" >&2; fail 3 "apt-get download failed; perhaps first run: apt-get update"; }
  rm -f "$folder/download.log"
  fetch_cudnn_frontend "$folder" || say "no headers of cuDNN's frontend; maestro's own kernels compute attention"
  say "$folder: ${#names[@]} packages, $(du -sh "$folder" | cut -f1); use it with MAESTRO_DEPS=$folder ./run gpu-test"
}

# Extracts the headers from the wheel that pip finds.
fetch_cudnn_frontend() {
  local folder=$1 scratch
  scratch=$(mktemp -d)
  if python3 -m pip download --quiet --no-deps --dest "$scratch" nvidia-cudnn-frontend >/dev/null 2>&1 &&
    python3 - "$scratch" "$folder/cudnn_frontend" <<'PYTHON'; then
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(sys.argv[2], [name for name in archive.namelist() if name.startswith("include/")])
PYTHON
    rm -rf "$scratch"
    return 0
  fi
  rm -rf "$scratch"
  return 1
}

# Makes $gpu_options refer to the content of MAESTRO_DEPS. Package files are unpacked once into the build folder.
unpack_gpu_deps() {
  local deps package gpu_prefix
  deps=$(readlink -f -- "$MAESTRO_DEPS")
  if [[ -d $deps/usr ]]; then gpu_options+=("-DMAESTRO_DEPS=$deps"); return 0; fi
  compgen -G "$deps/*.deb" >/dev/null ||
    fail 2 "MAESTRO_DEPS=$MAESTRO_DEPS holds no packages; fill it with: ./run gpu-deps $MAESTRO_DEPS"
  gpu_prefix=$build_dir/gpu-deps
  gpu_options+=("-DMAESTRO_DEPS=$gpu_prefix")
  if [[ $(cat "$gpu_prefix/unpacked" 2>/dev/null) == "$(cd "$deps" && ls)" ]]; then return 0; fi
  rm -rf "$gpu_prefix"
  mkdir -p "$gpu_prefix/usr/include"
  for package in "$deps"/*.deb; do dpkg -x "$package" "$gpu_prefix" || fail 3 "$package cannot be unpacked"; done
  if [[ -d $deps/cudnn_frontend/include ]]; then cp -r "$deps/cudnn_frontend/include/." "$gpu_prefix/usr/include/"; fi
  (cd "$deps" && ls) >"$gpu_prefix/unpacked"
}

# Prints the architectures of this machine's GPUs, "90;100"; fails if the driver reports none.
device_architectures() {
  local capabilities
  command -v nvidia-smi >/dev/null || return 1
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u) || return 1
  [[ $capabilities =~ ^[0-9]+\.[0-9]([[:space:]][0-9]+\.[0-9])*$ ]] || return 1
  capabilities=${capabilities//./}
  echo "${capabilities//$'\n'/;}"
}

# Compiles only for this machine's GPUs: code for all architectures takes three times longer.
choose_gpu_architectures() {
  local architectures
  if [[ -n ${CUDAARCHS:-} ]] || ! architectures=$(device_architectures); then return 0; fi
  gpu_options+=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
}

# Sets $cuda_options for a build of everything in folder $1. The CUDA backend takes minutes to compile: it is built if
# MAESTRO_CUDA is set (AUTO or ON, all architectures), if an earlier configuration had it, or if a GPU is found (its
# architecture).
choose_cuda() {
  local folder=$1 architectures
  cuda_options=()
  if [[ -n ${MAESTRO_CUDA:-} ]]; then
    cuda_options=("-DMAESTRO_CUDA=$MAESTRO_CUDA")
  elif grep -qsE '^MAESTRO_CUDA:[A-Z]+=(AUTO|ON)$' "$folder/CMakeCache.txt"; then
    return 0
  elif architectures=$(device_architectures); then
    cuda_options=(-DMAESTRO_CUDA=AUTO "-DCMAKE_CUDA_ARCHITECTURES=$architectures")
  else
    cuda_options=(-DMAESTRO_CUDA=OFF)
  fi
}

# prepare_gpu FEATURES TARGET...
prepare_gpu() {
  local purposes="gpu_tools gpu"
  choose_gpu_architectures
  if [[ -n ${MAESTRO_DEPS:-} ]]; then
    unpack_gpu_deps
    purposes=gpu_tools
  fi
  prepare gpu "$purposes" "$@"
}

# Exits with $no_device_status, after a line with the reason, if a device is missing.
require_device() {
  local devices
  if devices=$("$build_dir/gpu/bin/show_cuda_devices"); then
    say "$devices"
    return 0
  fi
  fail "$no_device_status" "$devices; built, but $1 not run"
}

# Prints the path of compute-sanitizer, found in PATH or in the toolkit, which CMake finds without PATH.
find_sanitizer() {
  local in_toolkit=${CUDA_PATH:-${CUDA_HOME:-/usr/local/cuda}}/bin/compute-sanitizer
  command -v compute-sanitizer && return 0
  [[ -x $in_toolkit ]] && echo "$in_toolkit"
}

# Runs compute-sanitizer on the tests that CMake has listed for it, with the tools in MAESTRO_DEVICE_CHECKS. Failing
# calls are not reported: tests make some fail, and libraries query drivers for functions that may be missing.
run_device_checks() {
  local sanitizer tool program filter failed=0
  if ! sanitizer=$(find_sanitizer); then say "compute-sanitizer is not installed; left out"; return 0; fi
  for tool in ${MAESTRO_DEVICE_CHECKS-memcheck racecheck}; do
    while read -r program filter; do
      [[ -n $program ]] || continue
      say "$tool: $(basename "$program") $filter"
      "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
        "$program" --gtest_brief=1 "--gtest_filter=$filter" </dev/null || failed=1
    done <"$build_dir/gpu/device_checked_tests"
  done
  return "$failed"
}

gpu_test() {
  prepare_gpu MAESTRO_BUILD_TESTS gpu_tests
  require_device tests
  ctest --test-dir "$build_dir/gpu" --output-on-failure --no-tests=error -L gpu "$@"
  run_device_checks || fail 1 "compute-sanitizer found errors; see above"
}

gpu_bench() {
  if [[ ${1:-} == --help ]]; then exec python3 "$root/benchmarks/gpu/compare.py" --help; fi
  prepare_gpu "MAESTRO_BUILD_TESTS MAESTRO_BUILD_BENCHMARKS" show_cuda_devices gpu_bench
  require_device benchmarks
  exec python3 "$root/benchmarks/gpu/compare.py" --binaries "$build_dir/gpu/bin" "$@"
}
