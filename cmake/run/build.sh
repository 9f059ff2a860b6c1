# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Configures and builds a preset. Sourced by `run`; needs say(), fail(), $root and $build_dir.

seconds_per_file=4  # compilation on one core, measured

# Prints the number of build jobs: one per core, if memory suffices (1.5 GB each). MAESTRO_JOBS overrides it.
build_jobs() {
  if [[ -n ${MAESTRO_JOBS:-} ]]; then echo "$MAESTRO_JOBS"; return; fi
  local cores memory_mb limit jobs
  cores=$(nproc 2>/dev/null || echo 2)
  memory_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo 2>/dev/null || true)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1048576 < ${memory_mb:-1048576})); then memory_mb=$((limit / 1048576)); fi
  jobs=$((${memory_mb:-3000} / 1500))
  if ((jobs > cores)); then jobs=$cores; fi
  echo $((jobs < 1 ? 1 : jobs))
}

# fail_configuration LOG: shows CMake's errors in its output.
fail_configuration() {
  grep -A 12 -m 3 '^CMake Error' "$1" >&2 || tail -n 30 "$1" >&2
  fail 1 "configuration failed; the whole output is in $1"
}

# Sets $environment to the variables that choose compilers and flags, a line each. CMake reads them only when it makes a
# folder; a variable that is not set now keeps the value that the folder was made with.
choose_environment() {
  local folder=$1 name
  environment=
  for name in CC CXX CFLAGS CXXFLAGS LDFLAGS CUDACXX CUDAFLAGS; do
    if [[ -z ${!name:-} ]]; then printf -v "$name" '%s' "$(sed -n "s/^$name=//p" "$folder/configured" 2>/dev/null)"; fi
    if [[ -n ${!name} ]]; then export "${name?}"; fi
    environment+=$'\n'"$name=${!name}"
  done
}

# configure PRESET [FEATURE...]: features are CMake options (MAESTRO_BUILD_TESTS, ...) that have to be on. They are
# never turned off, so that `run test` after `run distill` adds the tests, and a further `run distill` changes nothing.
configure() {
  local preset=$1 folder=$build_dir/$1 environment stamp feature options=() fresh=()
  shift
  for feature in MAESTRO_BUILD_TESTS MAESTRO_BUILD_BENCHMARKS; do
    if [[ " $* " == *" $feature "* ]] || grep -qs "^$feature:BOOL=ON" "$folder/CMakeCache.txt"; then
      options+=("-D$feature=ON")
    else
      options+=("-D$feature=OFF")
    fi
  done
  if [[ $preset == gpu ]]; then
    options+=("${gpu_options[@]}")
  else
    choose_cuda "$folder"
    options+=("${cuda_options[@]}")
  fi
  choose_environment "$folder"
  stamp="$root|${options[*]}|$(cksum <"$root/CMakePresets.json")$environment"
  if [[ -f $folder/build.ninja && $(cat "$folder/configured" 2>/dev/null) == "$stamp" ]]; then return 0; fi
  # CMake's cache keeps the folder of the sources, and what it has once read from the environment.
  if [[ -f $folder/CMakeCache.txt ]] && ! { grep -qFx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt" &&
    [[ $(cat "$folder/configured" 2>/dev/null) == *"$environment" ]]; }; then
    fresh=(--fresh)
  fi
  say "configuring ($preset)"
  rm -f "$folder/configured"
  if ! (cd "$root" && cmake --preset "$preset" -B "$folder" "${fresh[@]}" "${options[@]}") >"$folder.log" 2>&1; then
    fail_configuration "$folder.log"
  fi
  printf '%s\n' "$stamp" >"$folder/configured"
}

# Renews a folder's build.ninja if sources were added or removed, or a CMake file has changed.
renew_build_files() {
  local folder=$1 line
  if ninja -C "$folder" build.ninja 2>&1 | tee "$folder.log" | while IFS= read -r line; do
    if [[ $line == *"Re-running CMake"* ]]; then say "configuring (${folder##*/})"; fi
  done; then return 0; fi
  fail_configuration "$folder.log"
}

# Prints the steps that ninja would carry out, a line each; nothing if the targets are up to date. A dry run of
# build.ninja itself ends at the check of globbed directories, which is always due; for another file there is no check.
planned_steps() {
  local folder=$1
  shift
  [[ -e $folder/planned.ninja ]] || echo "include build.ninja" >"$folder/planned.ninja"
  NINJA_STATUS='' ninja -C "$folder" -f planned.ninja -n "$@" 2>&1 | grep -vE '^ninja: (no work to do\.|Entering directory)' || true
}

# Prints ": 412 files, about 6 minutes without a compiler cache" for the compilations among steps, or nothing.
compilations() {
  local files minutes
  files=$(grep -cE '^Building [A-Z]+ object ' <<<"$1" || true)
  if ((files == 0)); then return 0; fi
  minutes=$(((files * seconds_per_file / $(build_jobs) + 59) / 60))
  echo ": $files file$([[ $files == 1 ]] || echo s), about $minutes minute$([[ $minutes == 1 ]] || echo s) without a compiler cache"
}

# build PRESET TARGET...: prints nothing if everything is up to date. Objects in a compiler cache are found from a clone
# with another name, too.
build() {
  local preset=$1 folder=$build_dir/$1 steps
  local -x CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1} NINJA_STATUS='[%p] '
  shift
  renew_build_files "$folder"
  steps=$(planned_steps "$folder" "$@")
  if [[ -z $steps ]]; then return 0; fi
  say "building $preset$(compilations "$steps")"
  if [[ -t 2 ]]; then
    ninja -C "$folder" -j "$(build_jobs)" "$@" >&2 || fail 1 "the build failed; the first error is above"
    return 0
  fi
  if ninja -C "$folder" -j "$(build_jobs)" "$@" 2>&1 | tee "$folder.log" | show_progress; then return 0; fi
  if grep -q '^FAILED: ' "$folder.log"; then
    sed -n '/^FAILED: /,$p' "$folder.log" | head -n 80 >&2
  else
    tail -n 20 "$folder.log" >&2
  fi
  fail 1 "the build failed; the whole output is in $folder.log"
}

# Prints a line for every 10% in ninja's "[ 42%] ..." lines, so that the log is short and shows progress. (Not awk:
# Debian's awk reads ahead and would print late.)
show_progress() {
  local line tenth shown=0
  while IFS= read -r line; do
    [[ $line =~ ^\[\ *([0-9]+)%\] ]] || continue
    tenth=$((BASH_REMATCH[1] / 10))
    if ((tenth > shown)); then
      shown=$tenth
      echo "  ${tenth}0% built" >&2
    fi
  done
}

# prepare PRESET PURPOSES FEATURES TARGET...: installs packages, configures and builds, with a lock per build folder.
# PURPOSES and FEATURES are words in a single argument.
prepare() {
  local preset=$1 purposes=$2 features=$3
  shift 3
  # shellcheck disable=SC2086
  require_packages $purposes
  if [[ -n $build_place ]]; then say "$build_place"; fi
  mkdir -p "$build_dir"
  {
    flock -n 9 || { say "another run is building in $build_dir; waiting for it"; flock 9; }
    # shellcheck disable=SC2086
    configure "$preset" $features
    build "$preset" "$@"
  } 9>"$build_dir/$preset.lock"
}
