#!/bin/sh
# Runs a command that is not trusted: without network, devices, other processes or capabilities, in
# a file system that holds /usr, read-only, and an empty /tmp, the working directory. The
# environment is empty but for PATH, HOME and LC_ALL; standard input, output and error are the
# caller's. All of its processes end with it.
#
#   sh tests/bench/sandbox.sh COMMAND [ARGUMENT ...]
#   sh tests/bench/sandbox.sh --check      tries whether its limits are effective
#
#   TIMEOUT      seconds (3) of wall-clock time for all, and of CPU time for each process. A command
#                that stops the timer has 30 more
#   MEMORY_MB    address space of a process (512)
#   FILE_MB      size of a file (1), standard output and error included if they are files
#   SCRATCH_MB   size of /tmp (16)
#   PROCESSES    processes and threads (16), the four of the sandbox included
#
# Memory is limited for each process only, so all together may use PROCESSES times as much. The exit
# status is the command's; 137 after TIMEOUT; 125 if the sandbox cannot be set up, with the reason:
# then the command was not started (a command's own 125 becomes 1). If root runs it, the processes
# belong to user 65534, because root's are not limited in number. Needs Linux 5.14, user namespaces
# and util-linux (unshare, setpriv, prlimit, mount, pivot_root).
set -eu
timeout=${TIMEOUT:-3} processes=${PROCESSES:-16}

refuse() {
    echo "sandbox: $1" >&2
    exit 125
}

if [ "${1:-}" = --check ]; then
    export TIMEOUT=30
    # The shell exits with 2 where it cannot fork.
    status=0
    PROCESSES=8 sh "$0" sh -c '
        for file in /x /usr/x /dev/x; do ! touch "$file" || exit 3; done 2>/dev/null
        touch /tmp/x || exit 4
        [ -z "$(ls /proc /old | grep -v :)" ] || exit 5
        for i in 1 2 3 4 5 6 7 8; do sleep 1 & done 2>/dev/null' || status=$?
    case $status in
    2) ;;
    0) refuse "the number of processes is not limited here: nothing is run" ;;
    125) exit 125 ;;
    *) refuse "does not isolate here (check $status): nothing is run" ;;
    esac
    exit 0
fi
[ $# -gt 0 ] || refuse "needs a command; see the head of $0"
for tool in unshare setpriv prlimit timeout; do
    command -v $tool >/dev/null || refuse "needs $tool (util-linux, coreutils)"
done

# With the caller's /proc, which umount reads, until the command starts; descriptor 3 reports that
# it does.
inside='
set -e
PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs -o size=1m,mode=755,nosuid,nodev none /tmp
cd /tmp
mkdir usr tmp dev proc old
mount --bind -o ro,nosuid /usr usr
for folder in bin lib lib64; do
    if [ -L /$folder ]; then
        ln -s "$(readlink /$folder)" $folder
    elif [ -d /$folder ]; then
        mkdir $folder
        mount --bind -o ro,nosuid /$folder $folder
    fi
done
: >dev/null
mount --bind /dev/null dev/null
mount -t tmpfs -o "size=$1m,mode=700,nosuid,nodev" none tmp
mount --rbind /proc proc
{ echo 0 >/proc/sys/user/max_user_namespaces; } 2>/dev/null || :
pivot_root . old
cd /tmp
umount -l /old
mount -o remount,bind,ro /
umount -l /proc
processes=$2 timeout=$3
shift 3
echo ready >&3
status=0
env -i PATH=/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8 timeout -s KILL "$timeout" prlimit --nproc="$processes" -- setpriv --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@" 3>&- || status=$?
exit $status'

# The file is open before privileges are dropped.
ready=$(mktemp)
trap 'rm -f "$ready"' EXIT
user=
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups --"
status=0
whole=$(awk -v t="$timeout" 'BEGIN { print int(t) + (t > int(t)) }')
# The outer limit is for a command that stops the inner one, and for an overloaded machine.
# shellcheck disable=SC2086 # words
timeout -s KILL $((whole + 30)) prlimit --as=$((${MEMORY_MB:-512} << 20)) --fsize=$((${FILE_MB:-1} << 20)) \
    --cpu=$whole --nofile=64 --core=0 -- \
    $user unshare --user --map-root-user --mount --net --pid --ipc --uts --fork --kill-child -- \
    sh -c "$inside" sandbox "${SCRATCH_MB:-16}" "$processes" "$timeout" "$@" 3>"$ready" || status=$?
[ -s "$ready" ] || refuse "cannot be set up here (user namespaces may be forbidden): nothing is run"
[ "$status" -ne 125 ] || status=1
exit "$status"
