#!/bin/bash
# Where bmc-gen --numa puts a model and its threads on two NUMA nodes, those of an emulated machine (QEMU): the same tokens with and without
# the option, the pages of each node, the cores of each thread. Emulation has no memory bandwidth to measure: no times.
#
#   KERNEL=vmlinuz [MODEL=model.bmc] bash tests/bench/numa.sh
#
# Needs qemu-system-x86_64, a static busybox, cpio, and a kernel with CONFIG_NUMA. LOG is a file for the console's output.
set -euo pipefail
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
: "${KERNEL:?a kernel image, vmlinuz}" 
model=${MODEL:-models.d/grimm.bmc}
for needed in qemu-system-x86_64 busybox cpio; do
    command -v $needed >/dev/null || { echo "numa: needs $needed" >&2; exit 2; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-numa.XXXXXX")
trap 'rm -rf "$work"' EXIT
mb=$(($(stat -Lc %s "$model") >> 20))
memory=$((4 * mb + 512))
root=$work/root
mkdir -p "$root"/{bin,proc,sys,tmp,dev}
cp "$(command -v busybox)" "$root/bin/busybox"
cp bin/bmc-gen "$root/bin/"
ldd bin/bmc-gen | grep -o '/[^ ]*' | while read -r file; do
    mkdir -p "$root/$(dirname "$file")"
    cp -L "$file" "$root/$file"
done
ln "$model" "$root/model.bmc" 2>/dev/null || cp -L "$model" "$root/model.bmc"
cat >"$root/init" <<END
#!/bin/busybox sh
b=/bin/busybox
\$b mount -t proc proc /proc
\$b mount -t sysfs sys /sys
\$b mount -t devtmpfs dev /dev
run() { /bin/bmc-gen -m /model.bmc --prompt-ids "5 6 7" -n 16 --ids --ignore-eos --profile none -t 2 "\$@" 2>/tmp/err || \$b cat /tmp/err; }
echo "nodes: \$(\$b cat /sys/devices/system/node/online), cores \$(\$b cat /sys/devices/system/node/node*/cpulist | \$b tr '\n' ' ')"
echo "ids: \$(run)"
echo "ids, --numa: \$(run --numa)"
# pages of the copy, and the cores of the threads, while it waits for its prompt
\$b mkfifo /tmp/prompt
/bin/bmc-gen -q -m /model.bmc -f /tmp/prompt -n 1 --profile none -t 2 --numa 2>/tmp/err & pid=\$!
exec 5>/tmp/prompt
while ! \$b grep -q prefer /proc/\$pid/numa_maps; do \$b sleep 1; done
\$b sleep 5
\$b awk '{ n0 = n1 = 0; for (i = 3; i <= NF; i++) { if (\$i ~ /^N0=/) n0 = substr(\$i, 4); if (\$i ~ /^N1=/) n1 = substr(\$i, 4) }
    if (\$2 ~ /^prefer/) { prefer[\$2] += n0 + n1; own[\$2] += \$2 ~ /:0\$/ ? n0 : n1 } }
    END { for (p in prefer) print "pages of " p ": " prefer[p] ", on that node " own[p] }' /proc/\$pid/numa_maps
for task in /proc/\$pid/task/*; do echo "thread: cores \$(\$b sed -n 's/^Cpus_allowed_list:[^0-9]*//p' \$task/status)"; done
exec 5>&-
wait
\$b poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initrd"
qemu-system-x86_64 -cpu max -smp 2,sockets=2,cores=1 -m "$memory" -display none -no-reboot -serial stdio -monitor none \
    -object memory-backend-ram,id=m0,size=$((memory / 2))M -object memory-backend-ram,id=m1,size=$((memory - memory / 2))M \
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 \
    -kernel "$KERNEL" -initrd "$work/initrd" -append 'console=ttyS0 quiet panic=-1' </dev/null | tr -d '\r' | tee "${LOG:-/dev/null}" | grep -aE '^(nodes|ids|pages|thread)|bmc-gen' | tee "$work/out"
# the same tokens, all pages of both nodes where they belong, a thread on each
awk '/^ids/ { sub(/.*: /, ""); if (n++ && $0 != ids) exit bad = 1; ids = $0 }
    /^pages/ { nodes++; if ($4 + 0 != $NF + 0) exit bad = 1 }
    /^thread: cores [01]$/ { threads++ }
    END { exit bad || n != 2 || nodes != 2 || threads != 2 }' "$work/out" || { echo "numa: not as expected" >&2; exit 1; }
