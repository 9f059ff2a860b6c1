# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# `run docs` and `run release`. Sourced by `run`; needs build.sh and packages.sh.

# Prints the version in CMakeLists.txt; tests/build/check_docs.py compares its copies.
project_version() { sed -nE 's/^project\(maestro VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt" 2>/dev/null | grep .; }

build_docs() {
  [[ $# -le 1 ]] || fail 2 "docs takes one folder, not $#"
  local folder
  folder=$(readlink -m -- "${1:-$build_dir/site}")
  require_packages docs
  mkdocs build --quiet --strict --clean --config-file "$root/mkdocs.yml" --site-dir "$folder" >&2 ||
    fail 1 "the documentation cannot be built; see above"
  echo "$folder/index.html"
}

# Refuses a wrong version, changelog, tag or clone before anything is built.
check_release() {
  local version=$1 tag=$2 heading
  [[ $version == "$(project_version)" ]] || fail 2 "release $version: CMakeLists.txt has version $(project_version)"
  heading=$(grep -m 1 '^## \[' "$root/CHANGELOG.md")
  [[ $heading =~ ^"## [$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
    fail 2 "release $version: the first heading of CHANGELOG.md is '$heading' instead of '## [$version] - $(date +%F)'"
  [[ -z $(git -C "$root" status --porcelain) ]] || fail 2 "release $version: the clone has changes; commit them first"
  if [[ -n $tag ]] && git -C "$root" rev-parse -q --verify "refs/tags/v$version" >/dev/null; then
    fail 2 "release $version: the tag v$version is there already"
  fi
}

# Packs the commit's sources into an archive that has the same bytes on any machine.
make_release() {
  local version=${1:-} tag=${2:-} folder
  [[ -n $version && $# -le 2 && ($tag == "" || $tag == --tag) ]] || fail 2 "release takes VERSION and perhaps --tag, not '$*'"
  require_packages release
  check_release "$version" "$tag"
  folder=$build_dir/releases/$version
  rm -rf -- "$folder"
  mkdir -p "$folder"
  git -C "$root" -c tar.umask=0022 archive --prefix="maestro-$version/" HEAD | gzip -9n >"$folder/maestro-$version.tar.gz"
  build_docs "$folder/maestro-$version-docs" >/dev/null
  tar -C "$folder" -czf "$folder/maestro-$version-docs.tar.gz" "maestro-$version-docs"
  rm -rf -- "$folder/maestro-$version-docs"
  make_packages "$folder" >/dev/null
  (cd "$root/clients/python" && python3 -W ignore setup.py --quiet sdist --dist-dir "$folder") >&2 ||
    fail 1 "the Python client cannot be packed; see above"
  (cd "$folder" && shopt -s nullglob && sha256sum -- *.tar.gz *.deb *.whl >SHA256SUMS)
  if [[ -n $tag ]]; then git -C "$root" tag -a "v$version" -m "maestro $version"; fi
  ls "$folder"/*
}
