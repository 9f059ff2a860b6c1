#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sbatch slurm.sh JOB.toml RUN: a run that goes on after preemptions, time limits and lost nodes. RUN is train.out.
# Nodes, tasks, time and partition are yours; sbatch's options override these lines.
#SBATCH --job-name=maestro
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@300
# TERM reaches the processes of the step 300 s before the time limit: as long as a step and a checkpoint may take.

job=${1:?JOB.toml} run=${2:?RUN, the train.out of the job}

# Keys for several nodes, made once by `maestro keys keys`, on a file system that all nodes see.
options=(--resume auto)
if ((SLURM_JOB_NUM_NODES > 1)); then options+=(--listen auto --keys "${MAESTRO_KEYS:-keys}"); fi

srun --distribution=block "${MAESTRO:-maestro}" train "$job" --set "train.out='$run'" "${options[@]}"
status=$?

# A run that was stopped in order ends with 0 before its last step; one that failed is tried twice more. 2 is wrong input.
if ((status == 0)) && ! tail -n 1 "$run/record/events.jsonl" | grep -q '"event":"finished".*"interrupted":true'; then exit 0; fi
if ((status == 2)) || ((status != 0 && ${SLURM_RESTART_COUNT:-0} >= 2)); then exit "$status"; fi
echo "status $status after start ${SLURM_RESTART_COUNT:-0}: queued again"
scontrol requeue "$SLURM_JOB_ID"
