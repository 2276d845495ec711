#!/usr/bin/env bash
# A Slurm of this host alone, in a folder of its own, runs the batch script, asks it for its node
# when there is a checkpoint, and waits for the end of the job's next start.
#   one_node_slurm.sh FOLDER PORT BINARY BATCH_SCRIPT JOB.toml
# Prints what the job printed; the exit code is 0 when Slurm says COMPLETED.
set -euo pipefail
folder=$1 port=$2 binary=$3 script=$4 job=$5
cd "$folder"
mkdir -p state spool munge
node=$(hostname -s)
me=$(id -un)

head -c 1024 /dev/urandom > munge.key
chmod 400 munge.key
cat > slurm.conf << END
ClusterName=meshwright-test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=$node NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin

# They write to the folder until they have ended.
stop() {
  scancel --quiet --user="$me" 2> /dev/null || true
  local pid file
  for file in slurmd.pid slurmctld.pid munge/pid; do
    pid=$(cat "$file" 2> /dev/null || true)
    if [ -z "$pid" ]; then continue; fi
    kill "$pid" 2> /dev/null || true
    for ((i = 0; i < 50; ++i)); do
      # One that has ended may stay as a name where nobody asks for it.
      if ! grep -qs '^State:[[:space:]][^ZX]' "/proc/$pid/status"; then continue 2; fi
      sleep 0.1
    done
    kill -KILL "$pid" 2> /dev/null || true
  done
}
trap stop EXIT

munged --force --key-file="$folder/munge.key" --socket="$folder/munge/socket" \
  --log-file="$folder/munge/log" --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed"
slurmctld -c
slurmd -c

# until_true SECONDS COMMAND...
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "not within its time: $*"
      tail -n 20 out slurmctld.log slurmd.log "$folder"/run/start-*/*.log 2> /dev/null
      return 1
    fi
    sleep 0.1
  done
}
state() { scontrol show job "$id" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
has_ended() { [[ "$(state)" =~ COMPLETED|FAILED|CANCELLED|TIMEOUT ]]; }

until_true 20 bash -c 'sinfo -h -o %t | grep -qx idle'
export MESHWRIGHT_BINARY=$binary MESHWRIGHT_RUN_DIR=$folder/run MESHWRIGHT_PROFILE=off
export MESHWRIGHT_PLAN_CACHE=off
id=$(sbatch --parsable --output="$folder/out" --time=10 "$script" "$job")
until_true 40 bash -c 'compgen -G "run/checkpoints/job/step-*/manifest.json"'
scancel --batch --signal=USR1 "$id"
until_true 60 has_ended
cat out
[ "$(state)" = COMPLETED ]
