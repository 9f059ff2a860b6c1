# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# `run verify`: the checks before a change is merged. Sourced by `run`; needs build.sh and packages.sh.
# Every step runs in a separate shell, so that a failure does not hide the next.
verify_steps=(format layers gcc headers clang tidy asan tsan)

project_files() { find "$root"/{runtime,transport,sections,actors,apps,tests,benchmarks} -type f -name "$1" -print0; }

verify_format() {
  local files output wrong
  mapfile -d '' files < <(project_files '*.[hc]pp'; project_files '*.cu'; project_files '*.cuh')
  if output=$(clang-format --dry-run -Werror --style=file "${files[@]}" 2>&1); then return 0; fi
  mapfile -t wrong < <(sed -n 's/:[0-9]*:[0-9]*: error: .*clang-format-violations.*//p' <<<"$output" | sort -u)
  if [[ ${#wrong[@]} == 0 ]]; then echo "$output" >&2; return 1; fi
  printf '%s: run clang-format -i on it\n' "${wrong[@]}" >&2
  return 1
}

verify_layers() { python3 "$root/tests/build/check_layers.py" "$root"; }
verify_gcc() { prepare release "build test bench" "MAESTRO_BUILD_TESTS MAESTRO_BUILD_BENCHMARKS" all; }
verify_headers() { prepare release "build test" MAESTRO_BUILD_TESTS header_self_containment; }
verify_clang() { prepare clang "build test bench check" "MAESTRO_BUILD_TESTS MAESTRO_BUILD_BENCHMARKS" all; }
# ctest runs programs of tests, as in run_tests without arguments.
verify_asan() { (export MAESTRO_TESTS=programs; run_sanitized address "${sanitized_tests[@]}"); }
verify_tsan() { (export MAESTRO_TESTS=programs; run_sanitized thread "${sanitized_tests[@]}"); }

# Prints sources that differ from the merge base with the main branch, or, on that branch, from the previous commit.
changed_sources() {
  local base
  base=$(git -C "$root" merge-base HEAD origin/HEAD 2>/dev/null || true)
  if [[ -z $base || $base == $(git -C "$root" rev-parse HEAD) ]]; then base=HEAD~1; fi
  git -C "$root" diff --name-only --diff-filter=d "$base" -- '*.cpp'
}

# clang-tidy's findings are advice; only files that it cannot parse are errors.
verify_tidy() {
  local sources
  if ! command -v clang-tidy >/dev/null; then say "clang-tidy is not installed; left out"; return 0; fi
  mapfile -t sources < <(changed_sources | grep -E '^(runtime|transport|sections|actors|apps)/' || true)
  if [[ ${#sources[@]} == 0 ]]; then return 0; fi
  prepare clang "build test check" MAESTRO_BUILD_TESTS all  # for clang's compile commands
  (cd "$root" && clang-tidy --quiet -p "$build_dir/clang" "${sources[@]}")
}

verify_project() {
  local step steps=() failed=()
  sanitized_tests=()  # empty: run_sanitized builds and runs the unit tests
  for step in "$@"; do
    if [[ $step == --system ]]; then sanitized_tests=(-L "unit|system"); continue; fi
    if [[ " ${verify_steps[*]} " != *" $step "* ]]; then
      fail 2 "verify has no step '$step'; there are: ${verify_steps[*]}"
    fi
    steps+=("$step")
  done
  if [[ ${#steps[@]} == 0 ]]; then steps=("${verify_steps[@]}"); fi
  require_packages build test bench check
  for step in "${steps[@]}"; do
    say "verify: $step"
    # A separate shell, because `set -e` is off inside a condition, and a failing step may exit.
    set +e
    (set -e; "verify_$step")
    local status=$?
    set -e
    if [[ $status != 0 ]]; then failed+=("$step"); fi
  done
  if [[ ${#failed[@]} != 0 ]]; then fail 1 "verify failed: ${failed[*]}"; fi
  say "verify passed: ${steps[*]}"
}
