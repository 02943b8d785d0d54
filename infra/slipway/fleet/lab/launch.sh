#!/bin/sh
# launch.sh FOLDER LOWER GROUP... -- COMMAND...: be the supervisor of one lab host.
#
# Mounts the host's tree (overlay: LOWER is shared and read-only, FOLDER/upper is the host's own) in a mount namespace
# of its own, so that the machine's mount table never changes and the mount goes with the last process. Then runs
# COMMAND (systemd-nspawn) in each control group's `host`, again after each reboot of the host (exit status 133).
#
# GROUP `self` means: below the cgroup v2 group this process was started in (a systemd unit that delegates).
# FOLDER/pid gets: boot id, process id, start time in ticks (field 22 of /proc/PID/stat); a host
# whose supervisor is gone counts as stopped. FOLDER/groups gets the group that `self` stands for.
set -eu

main() {
    folder=$1 lower=$2
    shift 2
    [ "${SLIPWAY_LAB_UNSHARED:-}" ] || SLIPWAY_LAB_UNSHARED=1 exec unshare --mount --propagation slave "$0" "$folder" "$lower" "$@"
    unset SLIPWAY_LAB_UNSHARED
    count=0
    groups=
    while [ "$1" != -- ]; do
        group=$1
        [ "$group" != self ] || group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
        mkdir -p "$group/supervisor" "$group/host"
        echo $$ >"$group/supervisor/cgroup.procs"
        if [ "$1" = self ]; then
            echo "$group" >"$folder/groups"
            for controller in $(cat "$group/cgroup.controllers"); do
                echo "+$controller" >"$group/cgroup.subtree_control"
            done
        fi
        groups="$groups $group"
        count=$((count + 1))
        shift
    done
    shift

    mount -t overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" slipway-lab "$folder/root"
    read -r stat </proc/$$/stat
    stat=${stat##*) }
    # shellcheck disable=SC2086 # fields 3 and on of the line
    started=$(set -- $stat && echo "${20}")
    echo "$(cat /proc/sys/kernel/random/boot_id) $$ $started" >"$folder/pid.new"
    mv "$folder/pid.new" "$folder/pid"

    while :; do
        status=0
        (
            self=$(exec sh -c 'echo $PPID')
            for group in $groups; do echo "$self" >"$group/host/cgroup.procs"; done
            exec setpriv --pdeathsig KILL "$@"
        ) || status=$?
        # systemd in the host outlives a killed nspawn; a host without its nspawn is no use to anyone.
        for group in $groups; do
            find "$group/host" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        done
        [ "$status" = 133 ] || exit "$status"
        echo "--- the host reboots"
    done
}

main "$@"
