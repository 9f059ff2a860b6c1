# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# `run fuzz`: a parser under libFuzzer. Sourced by `run`; needs build.sh and packages.sh.
fuzz_seconds=60  # default of --seconds
fuzz_limits=(-rss_limit_mb=2048 -timeout=10)  # per input: MB of memory, and seconds

fuzz_names() {
  local source
  for source in "$root"/tests/fuzz/*_target.cpp; do basename "$source" _target.cpp; done
}

# Prints files of other tests that references.txt names for target $1.
fuzz_references() {
  local name pattern
  while read -r name pattern; do
    if [[ $name == "$1" ]]; then (cd "$root" && compgen -G "$pattern" | sed "s|^|$root/|"); fi
  done <"$root/tests/fuzz/references.txt"
}

# Copies the seeds of target $1 into folder $2: libFuzzer reads folders.
fuzz_seeds() {
  local file number=0
  rm -rf "$2"
  mkdir -p "$2"
  while read -r file; do
    number=$((number + 1))
    cp "$file" "$2/$number-$(basename "$file")"
  done < <(find "$root/tests/fuzz"/{corpus,regressions}/"$1" -type f 2>/dev/null || true; fuzz_references "$1")
}

run_fuzz() {
  local name=${1:-} seconds=$fuzz_seconds names
  names=$(fuzz_names | tr '\n' ' ')
  if [[ -z $name ]]; then
    echo "fuzz targets: $names"
    return 0
  fi
  [[ " $names" == *" $name "* ]] || fail 2 "no fuzz target '$name'; there are: $names"
  if [[ $# == 3 && $2 == --seconds && $3 =~ ^[1-9][0-9]*$ ]]; then
    seconds=$3
  elif [[ $# != 1 ]]; then
    fail 2 "fuzz NAME takes '--seconds N' alone, not '${*:2}'"
  fi
  prepare fuzz "build test fuzz" MAESTRO_BUILD_TESTS "fuzz_$name"
  fuzz_for "$name" "$seconds"
}

# Runs target $1 for $2 seconds. Inputs that reach new code stay in inputs/NAME of the build folder for the next run.
fuzz_for() {
  local program=$build_dir/fuzz/bin/fuzz_$1 inputs=$build_dir/fuzz/inputs/$1 seeds=$build_dir/fuzz/seeds/$1
  local findings=$build_dir/fuzz/findings/$1 started finding status=0
  mkdir -p "$inputs" "$findings"
  fuzz_seeds "$1" "$seeds"
  fuzz_scratch=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
  trap 'rm -rf -- "$fuzz_scratch"' EXIT
  started=$(mktemp -p "$fuzz_scratch")
  touch -d "1 second ago" "$started"  # a file system's clock may not advance before the first finding
  TMPDIR=$fuzz_scratch "$program" -max_total_time="$2" "${fuzz_limits[@]}" -artifact_prefix="$findings/" \
    -print_final_stats=1 "$inputs" "$seeds" || status=1
  while read -r finding; do
    status=1
    say "finding: $program ${fuzz_limits[*]} $finding"
  done < <(find "$findings" -type f -newer "$started")
  if [[ $status != 0 ]]; then fail 1 "fuzz $1: a finding; the command above repeats it"; fi
  say "fuzz $1: no finding in $2 s; new inputs are in $inputs"
}
