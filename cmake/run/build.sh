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

# configure PRESET [FEATURE...]: features are CMake options (MAESTRO_BUILD_TESTS, ...) that have to be on. They are
# never turned off, so that `run test` after `run distill` adds the tests, and a further `run distill` changes nothing.
configure() {
  local preset=$1 folder=$build_dir/$1 stamp feature options=() fresh=()
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
  stamp="$root|${options[*]}|$(cksum <"$root/CMakePresets.json")"
  if [[ -f $folder/build.ninja && $(cat "$folder/configured" 2>/dev/null) == "$stamp" ]]; then return 0; fi
  # A folder that was configured for sources in another folder has to be configured afresh.
  if [[ -f $folder/CMakeCache.txt ]] && ! grep -qFx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  say "configuring ($preset)"
  rm -f "$folder/configured"
  if ! (cd "$root" && cmake --preset "$preset" -B "$folder" "${fresh[@]}" "${options[@]}") >"$folder.log" 2>&1; then
    grep -A 12 -m 3 '^CMake Error' "$folder.log" >&2 || tail -n 30 "$folder.log" >&2
    fail 1 "configuration failed; the whole output is in $folder.log"
  fi
  printf '%s\n' "$stamp" >"$folder/configured"
}

# Prints ": 412 files, about 6 minutes without a compiler cache" for the objects that a folder lacks for its targets,
# or nothing. (A dry run of ninja does not list them: it checks globbed directories first.)
missing_objects() {
  local folder=$1 object files=0 minutes
  shift
  while IFS= read -r object; do
    if [[ ! -e $folder/$object ]]; then files=$((files + 1)); fi
  done < <(ninja -C "$folder" -t commands "$@" 2>/dev/null | grep -oE -- ' -o [^ ]+\.o( |$)' | cut -d' ' -f3 | sort -u)
  if ((files == 0)); then return 0; fi
  minutes=$(((files * seconds_per_file / $(build_jobs) + 59) / 60))
  echo ": $files files, about $minutes minute$([[ $minutes == 1 ]] || echo s) without a compiler cache"
}

# build PRESET TARGET...: prints nothing if everything is up to date.
build() {
  local preset=$1 folder=$build_dir/$1 plan
  shift
  plan=$(ninja -C "$folder" -n "$@" 2>&1 || true)
  if [[ $plan == *"ninja: no work to do."* ]]; then return 0; fi
  say "building $preset$(missing_objects "$folder" "$@")"
  if [[ -t 2 ]]; then
    ninja -C "$folder" -j "$(build_jobs)" "$@" >&2 || fail 1 "the build failed; the first error is above"
    return 0
  fi
  local -x NINJA_STATUS='[%p] '
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
  mkdir -p "$build_dir"
  {
    flock -n 9 || { say "another run is building in $build_dir; waiting for it"; flock 9; }
    # shellcheck disable=SC2086
    configure "$preset" $features
    build "$preset" "$@"
  } 9>"$build_dir/$preset.lock"
}
