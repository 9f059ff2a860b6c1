# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Debian packages by purpose, and their installation. Sourced by `run`; needs say() and fail().
# An entry "package:command" also counts as installed if the command is found (for example a newer cmake).
packages_for_build=(
  g++:g++ cmake:cmake ninja-build:ninja
  libcaf-dev libfabric-dev libdnnl-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libxxhash-dev
  libonig-dev libutf8proc-dev libsentencepiece-dev libarchive-dev
  zlib1g-dev libsnappy-dev libzstd-dev liblz4-dev libbrotli-dev
  libpng-dev libjpeg62-turbo-dev libwebp-dev libsndfile1-dev libthrift-dev libboost-dev thrift-compiler libssl-dev
  libcpp-httplib-dev
)
packages_for_test=(libgtest-dev libgmock-dev pkgconf:pkg-config python3:python3 python3-thrift python3-jsonschema
  universal-ctags:ctags)
packages_for_bench=(libbenchmark-dev libfabric-bin)
packages_for_check=(clang:clang++ clang-format:clang-format clang-tidy:clang-tidy)
packages_for_package=(dpkg-dev:dpkg-shlibdeps file:file help2man:help2man lintian:lintian
  python3:python3 patchelf:patchelf)
packages_for_docs=(mkdocs:mkdocs)  # the test of the documentation is skipped without it
packages_for_release=(git:git python3:python3 python3-setuptools)
packages_for_fuzz=(clang:clang++ libclang-rt-14-dev)  # the latter has libFuzzer for Debian 12's clang
# Job launchers. The tests that need them are skipped without them.
packages_for_cluster=(openmpi-bin:mpirun slurm-wlm munge openssh-server)
# promtool, which checks the alert rules, and the parser of metrics. Their tests are skipped without them.
packages_for_prometheus=(prometheus:promtool python3-prometheus-client)
packages_for_types=(mypy:mypy)  # the check of the Python package's types is skipped without it
packages_for_browser=(chromium:chromium)  # tests of pages that need it are skipped without it

# Prints the missing packages of the given purposes, a package per line.
missing_packages() {
  local purpose entry wanted=() installed
  for purpose in "$@"; do
    local -n entries="packages_for_$purpose"
    for entry in "${entries[@]}"; do
      if [[ $entry == *:* ]] && command -v "${entry#*:}" >/dev/null; then continue; fi
      wanted+=("${entry%%:*}")
    done
  done
  # shellcheck disable=SC2016  # dpkg-query expands the variables
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
  for entry in "${wanted[@]}"; do
    [[ $'\n'$installed$'\n' == *$'\n'"$entry installed"$'\n'* ]] || echo "$entry"
  done
}

# Prints the command prefix for root rights: nothing for root; sudo without a password, or with a terminal to enter it.
root_words() {
  if [[ $(id -u) == 0 ]]; then return 0; fi
  command -v sudo >/dev/null || return 1
  if [[ -t 0 ]]; then echo sudo; else sudo -n true 2>/dev/null && echo "sudo -n"; fi
}

# Makes sure that the packages for the given purposes are installed. Exits with 3 if missing packages may not or cannot
# be installed.
require_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    missing_tools_elsewhere "$@"
    return 0
  fi
  local missing words
  mapfile -t missing < <(missing_packages "$@")
  if [[ ${#missing[@]} == 0 ]]; then return 0; fi
  # With a compiler cache a clone keeps its objects when it is moved. A build does not need it.
  if [[ " $* " == *" build "* ]] && ! command -v ccache >/dev/null; then missing+=(ccache); fi
  say "missing Debian packages: ${missing[*]}"
  local by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  if [[ $no_install == yes ]]; then
    fail 3 "not installed because of --no-install; install them with: $by_hand"
  fi
  words=$(root_words) || fail 3 "installing them needs root and there is no usable sudo; as root run: $by_hand"
  install_packages "$words" "${missing[@]}" || fail 3 "apt-get could not install them; see above, or as root run: $by_hand"
}

# Installs the missing packages for an optional purpose, if that does not start services: as root, and without systemd.
# Never fails.
offer_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then return 0; fi
  mapfile -t missing < <(missing_packages "$@")
  if [[ ${#missing[@]} == 0 ]]; then return 0; fi
  say "missing Debian packages that some tests need: ${missing[*]}"
  if [[ $no_install == no && $(id -u) == 0 && ! -d /run/systemd/system ]]; then
    # With this run level Debian's maintainer scripts do not use init scripts to start services (man invoke-rc.d).
    if RUNLEVEL=1 install_packages "" "${missing[@]}"; then return 0; fi
  fi
  say "these tests are skipped; to run them: apt-get install --no-install-recommends ${missing[*]}"
}

# install_packages ROOT_WORDS PACKAGE...: shows apt's output only if it fails.
install_packages() {
  local words=$1 log
  shift
  log=$(mktemp)
  say "installing them with apt-get"
  # shellcheck disable=SC2086  # the words are a command prefix
  {
    $words env DEBIAN_FRONTEND=noninteractive apt-get update ||
      say "apt-get update failed; trying with the package lists at hand"
    $words env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
  } </dev/null >"$log" 2>&1 && { rm -f "$log"; return 0; }
  tail -n 30 "$log" >&2
  rm -f "$log"
  return 1
}

# For systems other than Debian: prints the required packages before the first successful configuration, and if a tool
# is missing.
missing_tools_elsewhere() {
  local purpose entry all=() absent=()
  for purpose in "$@"; do
    local -n entries="packages_for_$purpose"
    for entry in "${entries[@]}"; do
      all+=("${entry%%:*}")
      if [[ $entry == *:* ]] && ! command -v "${entry#*:}" >/dev/null; then absent+=("${entry#*:}"); fi
    done
  done
  if [[ ${#absent[@]} == 0 ]] && compgen -G "$build_dir/*/configured" >/dev/null; then return 0; fi
  say "this is not a Debian system; required packages, by their Debian names: ${all[*]}"
  if [[ ${#absent[@]} != 0 ]]; then fail 3 "not found here: ${absent[*]}"; fi
}
