#!/usr/bin/env bash
# One study on Slurm: a Ray cluster inside one job, a node a task. What the study has done outlives the job: near its
# time limit, or when a node is lost, the job is put back into the queue and goes on with the study.
#
#   sbatch slurm.sh STUDY.yaml STORAGE       # STORAGE: a folder that all nodes share, or s3://BUCKET/studies
#
# The environment with headtohead[cluster] (pip install '.[cluster]' in its folder) lies where all nodes see it, and is
# active when you call sbatch, or below.
# Why not `ray symmetric-run` (Ray 2.60): its exit code is 0 also when Ray could not be started, it passes no signal on
# to the study, and it ends with `ray stop`, which stops all Ray processes of yours on a node.
#SBATCH --job-name=headtohead
#SBATCH --output=headtohead-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
# --exclusive: Ray's ports are the same in every job, so two jobs cannot share a node. --signal: this script is told 300
# seconds before the time limit; that must be enough to save the trials.
set -euo pipefail
umask 077 # Ray's files and the token are nobody else's

if [ $# -ne 2 ]; then
  echo "usage: sbatch slurm.sh STUDY.yaml STORAGE" >&2
  exit 2
fi
study=$1
storage=$2
patience=300 # seconds for Ray to start on all nodes

# module load python; source ~/headtohead/bin/activate

# Whoever reaches a Ray cluster without authentication runs code on it, and others use these machines. The token's file
# is in the home folder, which the nodes share.
export RAY_AUTH_MODE=token
ray get-auth-token --generate > /dev/null
if [ -f ~/.ray/auth_token ]; then
  chmod 600 ~/.ray/auth_token
fi

# This script runs on the first node of the job: the head. Some machines know their own name as 127.0.1.1, where no
# other node finds them.
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes%%$'\n'*}
ip=$(getent ahostsv4 "$head" | awk '$1 !~ /^127[.]/ && !found++ {print $1}' || true)
ip=${ip:-$(hostname -I | awk '{print $1}')}
address=$ip:6379

gpus=${SLURM_GPUS_PER_NODE:-0}
options=(
  --block
  --num-cpus="$SLURM_CPUS_PER_TASK"
  --num-gpus="${gpus##*:}"           # Slurm may say a100:4
  --temp-dir="/tmp/h2h-$SLURM_JOB_ID" # not /tmp/ray, which may be another user's; short, as it holds sockets
)

# srun does not take over --cpus-per-task from sbatch (Slurm 22.05 and newer).
srun --nodes=1 --ntasks=1 --nodelist="$head" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  ray start --head --node-ip-address="$ip" --port="${address##*:}" --dashboard-host=127.0.0.1 "${options[@]}" &
deadline=$((SECONDS + patience))
until ray health-check --address "$address" > /dev/null 2>&1; do
  if [ $SECONDS -ge $deadline ]; then
    echo "Ray's head did not start within $patience seconds" >&2
    exit 1
  fi
  sleep 2
done
workers=$((SLURM_JOB_NUM_NODES - 1))
if [ $workers -gt 0 ]; then
  # A worker whose Ray ends leaves the others running: its trials go on there.
  srun --nodes=$workers --ntasks=$workers --exclude="$head" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    --kill-on-bad-exit=0 ray start --address="$address" "${options[@]}" &
fi

# The study plans with the nodes that are there when it starts.
python - "$address" "$SLURM_JOB_NUM_NODES" "$patience" << 'END'
import sys
import time

import ray

address, nodes, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ray.init(address=address, log_to_driver=False)
deadline = time.monotonic() + patience
while (alive := sum(node["Alive"] for node in ray.nodes())) < nodes:
    if time.monotonic() > deadline:
        sys.exit(f"Ray runs on {alive} of {nodes} nodes after {patience} seconds")
    time.sleep(1)
END

h2h run "$study" --resume --plain --address "$address" --set storage="$storage" &
driver=$!
requeue=
trap 'interrupted=yes; requeue=yes; kill -TERM "$driver"' USR1
trap 'interrupted=yes; kill -TERM "$driver"' TERM
ended=0
interrupted=yes
while [ -n "$interrupted" ]; do # a signal ends `wait`; the study then saves its trials and ends
  interrupted=
  ended=0
  wait "$driver" || ended=$?
done
if [ -n "$requeue" ] && [ $ended -eq 130 ]; then # interrupted, not done or failed
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $ended # Slurm ends the steps in which Ray runs
