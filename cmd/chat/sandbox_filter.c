/* The list of system calls that fail in a sandbox. Landlock restricts opening, creating and removing files; here are calls that
 * change files otherwise, and all other ways out. */
#include "chat/sandbox_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#define FILTER_ARCH 0
#endif

enum {
    X32 = 0x40000000,
    NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                 CLONE_NEWPID | CLONE_NEWNET
};

/* Numbers that are the same everywhere, for older headers. */
enum { CALL_FCHMODAT2 = 452, CALL_SETXATTRAT = 463, CALL_REMOVEXATTRAT = 466 };

static const int refused[] = {
    /* network; rings, which open sockets, too */
    SYS_socket,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    /* other processes */
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
    SYS_sched_setaffinity,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_process_madvise,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_semget,
    SYS_semctl,
    SYS_msgget,
    SYS_msgctl,
    SYS_mq_open,
    /* leaving the process group, by which all of them are ended */
    SYS_setsid,
    SYS_setpgid,
    /* namespaces and mounts */
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_open_tree,
    SYS_move_mount,
    SYS_mount_setattr,
    /* files: what Landlock does not restrict */
    SYS_fchmod,
    SYS_fchmodat,
    CALL_FCHMODAT2,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    CALL_SETXATTRAT,
    CALL_REMOVEXATTRAT,
    SYS_truncate,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_quotactl,
    SYS_acct,
    /* the kernel and its settings */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_personality,
    SYS_vhangup,
#ifdef __x86_64__
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_uselib,
    SYS_sysfs,
    SYS__sysctl,
#endif
};

/* Calls that C libraries try first and do without. */
static const int unknown[] = {SYS_clone3, SYS_openat2};

static void add(struct sandbox_filter *f, struct sock_filter code) { f->code[f->n++] = code; }

static void load(struct sandbox_filter *f, size_t at)
{
    add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)at));
}

static void answer(struct sandbox_filter *f, unsigned code)
{
    add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, code));
}

/* Runs the next instruction only if the loaded word is, or is not, `value`. */
static void only_if(struct sandbox_filter *f, bool equal, unsigned value)
{
    add(f,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, equal ? 0 : 1, equal ? 1 : 0));
}

static void refuse(struct sandbox_filter *f, const int *call, size_t n, unsigned why)
{
    for (size_t i = 0; i < n; i++) {
        only_if(f, true, (unsigned)call[i]);
        answer(f, SECCOMP_RET_ERRNO | why);
    }
}

/* Refuses a call if the bits `mask` of an argument are `value`, or are not; the argument's low half is looked at. */
static void refuse_argument(struct sandbox_filter *f, int call, size_t argument, unsigned mask,
                            bool equal, unsigned value)
{
    enum { CHECK = 5 };
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, CHECK));
    load(f, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t));
    add(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    only_if(f, equal, value);
    answer(f, SECCOMP_RET_ERRNO | EPERM);
    load(f, offsetof(struct seccomp_data, nr));
}

void sandbox_filter_make(struct sandbox_filter *f)
{
    const unsigned access = O_ACCMODE | O_TRUNC;
    f->n = 0;
    if (!FILTER_ARCH)
        return;
    load(f, offsetof(struct seccomp_data, arch));
    only_if(f, false, FILTER_ARCH);
    answer(f, SECCOMP_RET_KILL_PROCESS);
    load(f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1));
    answer(f, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    refuse(f, refused, ARRAY_LEN(refused), EPERM);
    refuse(f, unknown, ARRAY_LEN(unknown), ENOSYS);
    refuse_argument(f, SYS_clone, 0, NAMESPACES, false, 0);
    refuse_argument(f, SYS_prlimit64, 0, ~0U, false, 0); /* of other processes */
    /* before Linux 6.2, Landlock lets files be emptied that are opened for reading */
    refuse_argument(f, SYS_openat, 2, access, true, O_RDONLY | O_TRUNC);
#ifdef __x86_64__
    refuse_argument(f, SYS_open, 1, access, true, O_RDONLY | O_TRUNC);
#endif
    answer(f, SECCOMP_RET_ALLOW);
}
