# Simulates two hosts on this machine by network namespaces, between which tc sets the rate, and
# the delay if the kernel has netem. Sourced before lib.sh by scripts that need them, as root;
# creates the folder $work, removed with the hosts.
#
#   DELAY    of a packet, if it can be set (100us)

skip() {
    echo "skipped: $1"
    exit 0
}
[ "$(id -u)" -eq 0 ] || skip "only root can make network namespaces"
for tool in ip tc unshare mpirun; do
    command -v $tool >/dev/null || skip "no $tool here: iproute2, util-linux and Open MPI have these"
done

delay=${DELAY:-100us} a=bmc-a-$$ b=bmc-b-$$
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-network.XXXXXX")
clean() {
    ip netns del "$a" 2>/dev/null || :
    ip netns del "$b" 2>/dev/null || :
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
{ ip netns add "$a" && ip netns add "$b"; } 2>/dev/null || skip "no network namespace can be made here"
ip link add bmc0 netns "$a" type veth peer name bmc0 netns "$b" || skip "no pair of interfaces can be made here"
ip -n "$a" addr add 10.91.0.1/24 dev bmc0
ip -n "$b" addr add 10.91.0.2/24 dev bmc0
for host in "$a" "$b"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set bmc0 up
done

# shape_network RATE: netem sends packet after packet, and later; a bucket is the next best. It holds what 50 us of the rate are: from a
# smaller one less than the rate comes, for a timer fills it.
shape_network() {
    bits=$(echo "$1" | sed 's/b$/bit/')
    case $1 in 10Gb) burst=64kb ;; *) burst=6kb ;; esac
    for host in "$a" "$b"; do
        ip netns exec "$host" tc qdisc replace dev bmc0 root netem delay "$delay" rate "$bits" limit 100000 2>/dev/null || {
            ip netns exec "$host" tc qdisc replace dev bmc0 root tbf rate "$bits" burst "$burst" latency 100ms || skip "tc cannot set a rate here"
            delay=0
        }
    done
}

# How mpirun comes to the other host.
cat >"$work/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname $b; \$*"
END
chmod +x "$work/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none

# on_both PROGRAM ARGUMENT..: a rank on each host.
on_both() {
    ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" - mpirun -n 2 -H 10.91.0.1:1,10.91.0.2:1 \
        --mca plm_rsh_agent "$work/agent" --mca btl self,tcp --mca btl_tcp_if_include 10.91.0.0/24 \
        --mca oob_tcp_if_include 10.91.0.0/24 "$@"
}
