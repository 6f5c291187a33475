#!/usr/bin/env bash
# A Slurm cluster of several nodes on this one machine, for tests: the real daemons and commands, a
# network among the nodes, and nodes that can lose power, their daemon or their link.
#
#   cluster.sh missing           says what it lacks here; success when that is nothing
#   cluster.sh up NODES          controller "ctl" and nodes n1, n2 ...; returns when all are idle
#   cluster.sh exec NODE CMD...  runs CMD there (ctl, n1 ...) in the current folder
#   cluster.sh kill NODE         power loss: daemon, steps and tasks of the node are gone at once
#   cluster.sh start NODE        power again
#   cluster.sh killd NODE        only slurmd dies, steps and tasks live on
#   cluster.sh startd NODE       slurmd again
#   cluster.sh cut NODE          its link is down: no packet, no reset
#   cluster.sh heal NODE         its link is up
#   cluster.sh down              the end of all of it
#
# SLURMTEST_ROOT=FOLDER holds etc/ and log/ and is what tells clusters apart: any number may run at
# a time. SLURMTEST_TTL: seconds after which a forgotten cluster ends by itself.
#
# ctl is a set of net, uts, ipc, mount and pid namespaces with the controller, munged and a bridge;
# each node is a set inside it, its eth0 plugged into that bridge. Nothing is connected to the
# network of the machine. Since pid namespaces nest, SIGKILL to the init of ctl ends every process,
# and the kernel then frees namespaces, links and mounts. /run is a file system of the cluster,
# /dev/shm and /run/local are each node's own, everything else is the machine's and thus shared.
set -u
self=$(readlink -f "$0")
: "${SLURMTEST_ROOT:=/tmp/ballast-slurm}" "${SLURMTEST_TTL:=1800}"
export SLURMTEST_ROOT SLURMTEST_TTL
root=$SLURMTEST_ROOT
cpus=4 memory=2000 gpus=4 # what a node claims to have
network=10.77.0
namespaces=(--net --uts --ipc --mount --pid --fork --mount-proc --kill-child=KILL)

die() { printf 'cluster.sh: %s\n' "$*" >&2; exit 1; }

missing() {
    local program
    [ "$(id -u)" -eq 0 ] || { echo "root is needed"; return 1; }
    for program in slurmctld slurmd srun munged ip unshare nsenter; do
        command -v "$program" >/dev/null || {
            echo "$program is not installed (slurmctld slurmd slurm-client munge iproute2)"
            return 1
        }
    done
    [ -d /etc/slurm ] || { echo "/etc/slurm is not there"; return 1; }
    unshare "${namespaces[@]}" sh -c 'mount -t tmpfs none /run && mknod /run/null c 1 3' 2>/dev/null || {
        echo "namespaces, mounts or device files cannot be made here"
        return 1
    }
    unshare --net ip link add br0 type bridge 2>/dev/null || { echo "no bridge device here"; return 1; }
}

# ---- configuration -------------------------------------------------------------------------------

# cred_expire is how long a requeued job waits before it may start again. Limits of partition `high`
# and PreemptMode: a job there puts one of `main` back into the queue.
write_slurm_conf() { # NODES
    cat <<CONF
ClusterName=test
SlurmctldHost=ctl($network.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SlurmdParameters=config_overrides
GresTypes=gpu
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0,requeue_delay=1
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
${SLURMTEST_REQUEUE_EXIT:+RequeueExit=$SLURMTEST_REQUEUE_EXIT}
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=3600
MessageTimeout=10
UnkillableStepTimeout=15
NodeName=n[1-$1] NodeAddr=$network.[11-$((10 + $1))] CPUs=$cpus CoresPerSocket=$cpus RealMemory=$memory Gres=gpu:$gpus
PartitionName=main Nodes=ALL Default=YES DefaultTime=10:00 PriorityTier=1
PartitionName=high Nodes=ALL DefaultTime=10:00 PriorityTier=10 PreemptMode=OFF
CONF
}

write_hosts() { # NODES
    local i
    printf '127.0.0.1 localhost\n%s.1 ctl\n' "$network"
    for i in $(seq "$1"); do printf '%s.%d n%d\n' "$network" $((10 + i)) "$i"; done
}

configure() { # NODES
    rm -rf "${root:?}/etc" "$root/log"
    mkdir -p "$root/etc" "$root/log"
    write_hosts "$1" >"$root/etc/hosts"
    write_slurm_conf "$1" >"$root/etc/slurm.conf"
    echo "Name=gpu File=/run/gpu[0-$((gpus - 1))]" >"$root/etc/gres.conf"
}

# ---- inside ctl ----------------------------------------------------------------------------------

start_node() { # NUMBER
    local unshare tries=0
    setsid unshare "${namespaces[@]}" bash "$self" __node "$1" </dev/null >>"$root/log/n$1.out" 2>&1 &
    unshare=$!
    while [ "$(readlink /proc/$unshare/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || die "n$1 gets no namespaces"
        sleep 0.01
    done
    ip link del "h$1" 2>/dev/null # what a killed node left, if the kernel has not removed it yet
    ip link add "h$1" type veth peer name eth0 netns "$unshare" || die "n$1 gets no link"
    ip link set "h$1" master br0 up
    echo "$unshare" >"/run/n$1.unshare"
}

node_init() { # NODE: pid of the node's init as ctl counts them
    local unshare
    read -r unshare 2>/dev/null <"/run/$1.unshare" || die "there is no node $1"
    cat "/proc/$unshare/task/$unshare/children" 2>/dev/null
}

private_tmpfs() { mkdir -p "$1" && mount -t tmpfs -o mode=1777 tmpfs "$1"; }

ctl_main() { # NODES
    local i timer
    hostname ctl
    private_tmpfs /dev/shm
    private_tmpfs /run
    mount --bind "$root/etc" /etc/slurm
    mount --bind "$root/etc/hosts" /etc/hosts
    mkdir -p /run/munge /run/slurmctld /run/slurmd
    for i in $(seq 0 $((gpus - 1))); do mknod -m 666 "/run/gpu$i" c 1 3; done # each a /dev/null
    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$network.1/24" dev br0
    ip link set br0 up
    (umask 077 && head -c 256 /dev/urandom >/run/munge/key)
    munged -F --key-file=/run/munge/key --pid-file=/run/munge/pid --log-file="$root/log/munged.log" \
        --seed-file=/run/munge/seed --num-threads=2 --force &
    while ! [ -S /run/munge/munge.socket.2 ]; do sleep 0.01; done
    slurmctld -D -c &
    for i in $(seq "$1"); do start_node "$i"; done
    : >"$root/up"
    sleep "$SLURMTEST_TTL" &
    timer=$!
    while [ -d "/proc/$timer" ]; do wait -n; done # this is init: it reaps
}

node_main() { # NUMBER
    hostname "n$1"
    private_tmpfs /dev/shm
    private_tmpfs /run/local
    while ! grep -q eth0: /proc/self/net/dev; do sleep 0.01; done
    ip link set lo up
    ip addr add "$network.$((10 + $1))/24" dev eth0
    ip link set eth0 up
    slurmd -D &
    sleep infinity &
    while :; do wait; done
}

# ---- from the machine ----------------------------------------------------------------------------

ctl_init() { # pid of ctl's init as the machine counts them
    local pid
    read -r pid 2>/dev/null <"$root/ctl.pid" && [ -d "/proc/$pid" ] && echo "$pid"
}

# SC2016: the inner shell expands.
# shellcheck disable=SC2016
enter() { # PID COMMAND...: in the namespaces of PID, in the current folder
    local pid=$1
    shift
    exec nsenter -t "$pid" -n -u -i -m -p -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}
on_ctl() {
    local pid
    pid=$(ctl_init) || die "no cluster runs in $root"
    enter "$pid" "$@"
}

all_idle() { # NODES
    [ "$(on_ctl sinfo -h -p main -t idle -o %D 2>/dev/null)" = "$1" ]
}

up() { # NODES
    local unshare init='' reason tries=0
    reason=$(missing) || die "$reason"
    ctl_init >/dev/null && die "a cluster runs in $root already"
    configure "$1"
    rm -f "$root/up"
    setsid unshare "${namespaces[@]}" bash "$self" __ctl "$1" </dev/null >"$root/log/ctl.out" 2>&1 &
    unshare=$!
    until [ -n "$init" ] && [ -e "$root/up" ]; do
        init=$(cat "/proc/$unshare/task/$unshare/children" 2>/dev/null)
        init=${init% }
        tries=$((tries + 1))
        if ! [ -d "/proc/$unshare" ] || [ $tries -ge 1000 ]; then
            [ -z "$init" ] || kill -9 "$init"
            die "ctl did not start: $(cat "$root/log/ctl.out")"
        fi
        sleep 0.02
    done
    echo "$init" >"$root/ctl.pid"
    until (all_idle "$1"); do
        if [ $SECONDS -ge 30 ]; then
            (on_ctl sinfo -N -l) >&2
            down
            die "the nodes are not idle; see $root/log"
        fi
        sleep 0.1
    done
}

down() {
    local init parent
    init=$(ctl_init) || return 0
    parent=$(awk '/^PPid/ { print $2 }' "/proc/$init/status")
    kill -9 "$init"
    while [ -d "/proc/$init" ] || { [ "$parent" -ne 1 ] && [ -d "/proc/$parent" ]; }; do sleep 0.02; done
    rm -f "$root/ctl.pid" "$root/up"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
missing) missing ;;
up) up "${1:-2}" ;;
down) down ;;
exec)
    node=$1
    shift
    if [ "$node" = ctl ]; then on_ctl "$@"; else on_ctl bash "$self" __exec "$node" "$@"; fi
    ;;
kill | start | startd) on_ctl bash "$self" "__$command" "$1" ;;
killd) on_ctl bash "$self" __exec "$1" sh -c "kill -9 \$(cat /run/slurmd.$1.pid)" ;;
cut) on_ctl ip link set "h${1#n}" down ;;
heal) on_ctl ip link set "h${1#n}" up ;;
__ctl) ctl_main "$1" ;;
__node) node_main "$1" ;;
__exec)
    init=$(node_init "$1") && shift && enter "${init% }" "$@"
    ;;
__kill)
    init=$(node_init "$1") && kill -9 "${init% }"
    ;;
__start) start_node "${1#n}" ;;
__startd) on=$(node_init "$1") && enter "${on% }" slurmd ;;
*)
    sed -n '5,15s/^# \{0,1\}//p' "$self"
    exit 2
    ;;
esac
