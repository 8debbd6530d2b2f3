/* Limits of control groups, read from a folder that stands for the system's root: test_cgroup FOLDER. Expected values
 * follow from the kernel's documentation (cgroup-v1, cgroup-v2, proc_pid_mountinfo(5)). */
#include <stdlib.h>

#include "base/cgroup.h"
#include "tests/unit/check.h"
#include "tests/unit/sysfs_text.h"

enum { MI = 1 << 20 };

static const char *folder;
static char root[4096];
static int systems;

/* Begins another system, of these groups and mounts. */
static void begin(const char *groups, const char *mounts)
{
    snprintf(root, sizeof root, "%s/%d", folder, systems++);
    write_sysfs(root, "proc/self/cgroup", groups);
    write_sysfs(root, "proc/self/mountinfo", mounts);
}

static void put(const char *name, const char *text) { write_sysfs(root, name, text); }

static void expect(const char *what, size_t cpus, size_t memory)
{
    check(cgroup_cpus(root) == cpus, "%s: %zu cores, not %zu", what, cgroup_cpus(root), cpus);
    check(cgroup_memory(root) == memory, "%s: %zu bytes, not %zu", what, cgroup_memory(root), memory);
}

#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define CPU(root, mount)                                                                               \
    "33 31 0:30 " root " " mount " rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
#define MEMORY(root, mount) "36 31 0:33 " root " " mount " rw,relatime - cgroup memory rw,memory\n"
#define UNLIMITED           "9223372036854771712\n"

static void version_2(void)
{
    begin("0::/a.slice/b.service\n", V2);
    expect("no files", SIZE_MAX, SIZE_MAX);
    put("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.current", "4096\n");
    expect("no limits", SIZE_MAX, SIZE_MAX);
    put("sys/fs/cgroup/a.slice/cpu.max", "250000 100000\n");
    put("sys/fs/cgroup/a.slice/memory.max", "104857600\n");
    put("sys/fs/cgroup/a.slice/memory.current", "62914560\n");
    put("sys/fs/cgroup/a.slice/memory.stat",
        "anon 1\ninactive_file 20971520\nactive_file 10485760\nworkingset_x 7\n");
    expect("limits above", 3, 70 * MI);
    put("sys/fs/cgroup/a.slice/b.service/cpu.max", "50000 100000\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.high", "1048576\n");
    expect("less below", 1, 1048576 - 4096);
    put("sys/fs/cgroup/a.slice/b.service/memory.current", "2097152\n");
    expect("above memory.high", 1, 0);
    check(cgroup_memory_strain(root) == 0, "no strain: %zu", cgroup_memory_strain(root));
    put("sys/fs/cgroup/a.slice/b.service/memory.events", "low 9\nhigh 3\nmax 2\noom 0\n");
    put("sys/fs/cgroup/a.slice/memory.events", "low 0\nhigh 5\nmax 0\n");
    put("sys/fs/cgroup/a.slice/memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
        "total=9900000\n");
    check(cgroup_memory_strain(root) == 7, "events and stalls: %zu", cgroup_memory_strain(root));
    put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
    check(cgroup_memory_strain(root) == 17, "stalls of the system, too: %zu",
          cgroup_memory_strain(root));
    /* whose many do not hide those of the group */
    put("sys/fs/cgroup/a.slice/memory.events", "low 0\nhigh 6\nmax 0\n");
    check(cgroup_memory_strain(root) == 18, "one more event: %zu", cgroup_memory_strain(root));
}

static void version_1(void)
{
    begin("4:memory:/job\n3:cpuset:/\n2:cpu,cpuacct:/job\n0::/\n",
          "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" CPU(
              "/", "/sys/fs/cgroup/cpu,cpuacct") MEMORY("/", "/sys/fs/cgroup/memory"));
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", UNLIMITED);
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "0\n");
    check(cgroup_cpus(root) == SIZE_MAX, "v1, no quota: %zu cores", cgroup_cpus(root));
    check(cgroup_memory(root) >= (size_t)1 << 62, "v1, no limit: %zu bytes", cgroup_memory(root));
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "100001\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "10485760\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "9437184\n");
    put("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 4\nactive_file 4\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    expect("v1, rounded up, limit of the root", 2, 2 * MI);
    /* a container sees its group as the root of what is mounted */
    begin("4:memory:/docker/0f2c\n1:cpu,cpuacct:/docker/0f2c\n",
          CPU("/docker/0f2c", "/sys/fs/cgroup/cpu")
              MEMORY("/docker/0f2c", "/sys/fs/cgroup/mem\\040ory"));
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/mem ory/memory.limit_in_bytes", "8192\n");
    put("sys/fs/cgroup/mem ory/memory.usage_in_bytes", "0\n");
    expect("a container", 4, 8192);
    begin("1:cpu,cpuacct:/../other\n", CPU("/", "/sys/fs/cgroup/cpu"));
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/other/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/other/cpu.cfs_period_us", "100000\n");
    expect("outside of its namespace", 4, SIZE_MAX);
    /* a second mount, of another group, is not ours */
    begin("1:cpu:/mine\n", CPU("/theirs", "/theirs") CPU("/", "/sys/fs/cgroup/cpu"));
    put("theirs/cpu.cfs_quota_us", "100000\n");
    put("theirs/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/mine/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/cpu/mine/cpu.cfs_period_us", "100000\n");
    expect("two mounts", 3, SIZE_MAX);
}

static void malformed(void)
{
    static const char *const limits[] = {"",        "\n",          "0 0\n",     "1 0\n", "0 100000\n",
                                         "-1 -1\n", "-5 100000\n", "max max\n", "x"};
    begin("0::/\n", V2);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        put("sys/fs/cgroup/cpu.max", limits[i]);
        put("sys/fs/cgroup/memory.max", limits[i]);
        expect(limits[i], SIZE_MAX, SIZE_MAX);
    }
    put("sys/fs/cgroup/cpu.max", "99999999999999999999999999 1\n");
    check(cgroup_cpus(root) >= (size_t)1 << 62, "a large quota: %zu", cgroup_cpus(root));
    snprintf(root, sizeof root, "%s/none", folder);
    expect("no /proc", SIZE_MAX, SIZE_MAX);
    static const char *const whole[] = {"2:cpu,cpuacct:/job\n0::/a/b\n",
                                        V2 CPU("/", "/sys/fs/cgroup/cpu") MEMORY("/job", "/m")};
    uint64_t random = check_seed(1);
    begin("", "");
    for (int i = 0; i < 300; i++) { /* no value is expected, but an end, and no access out of bounds */
        char text[2][512];
        for (int t = 0; t < 2; t++) {
            snprintf(text[t], sizeof text[t], "%s", whole[t]);
            const size_t len = strlen(text[t]);
            for (int edits = 0; edits < 3; edits++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                text[t][(random >> 33) % len] = "/.:-, \\0\n\n"[random >> 60 & 7];
            }
            put(t ? "proc/self/mountinfo" : "proc/self/cgroup", text[t]);
        }
        check(cgroup_cpus(root) > 0, "no cores");
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    folder = argv[1];
    version_2();
    version_1();
    malformed();
    return check_result();
}
