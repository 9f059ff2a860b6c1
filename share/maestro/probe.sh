#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# probe.sh PATH PORT: exits with 0 if `maestro train --http` of this pod answers PATH with 200, for a probe of Kubernetes.
# Rank 0 alone serves HTTP; any other process is well while it is there.
if [[ ${RANK:-0} != 0 ]]; then exit 0; fi
exec 3<>"/dev/tcp/127.0.0.1/$2" || exit 1
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&3
read -r -t 5 _ status _ <&3 && [[ $status == 200 ]]
