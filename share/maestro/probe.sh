#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# probe.sh PATH PORT [TOKEN_FILE]: exits with 0 if `maestro train --http` of this pod answers PATH with 200, for a probe of Kubernetes.
# Rank 0 alone serves HTTP; any other process is well while it is there.
if [[ ${RANK:-0} != 0 ]]; then exit 0; fi
exec 3<>"/dev/tcp/127.0.0.1/$2" || exit 1
token=
if [[ -n ${3:-} ]]; then read -r token <"$3"; fi
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$1" "$token" >&3
read -r -t 5 _ status _ <&3 && [[ $status == 200 ]]
