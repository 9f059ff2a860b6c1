#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-to-the-end.sh RUN COMMAND...: for schedulers that start a command again when it fails.
#
# Runs COMMAND, a `maestro train` whose train.out is RUN, and passes signals on. Ends with its status; but where the run
# was stopped in order before its last step, as by the SIGTERM of a preemption, with 75 in the place of 0: start it again.
run=$1
shift
"$@" &
child=$!
trap 'kill -TERM "$child"' HUP INT TERM USR1 XCPU
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do  # a signal has ended the wait, not the run
  wait "$child"
  status=$?
done
if [ "$status" = 0 ] && tail -n 1 "$run/record/events.jsonl" | grep -q '"event":"finished".*"interrupted":true'; then
  exit 75
fi
exit "$status"
