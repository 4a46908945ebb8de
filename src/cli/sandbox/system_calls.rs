//! System calls that this process can no longer make (seccomp-BPF: Linux 3.17).

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{MaskedEq, Ne};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads, sock_filter,
};

// Numbers of Linux' `asm-generic/unistd.h` that the C library does not know yet.
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_OPEN_TREE_ATTR: c_long = 467;
const SYS_FILE_SETATTR: c_long = 469;

/// System calls without a use once a capture has started.
const UNUSED: &[c_long] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_userfaultfd,
    // Attributes of files by their paths.
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchownat,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    // Users and namespaces.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_unshare,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The kernel and the system.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    // Its requests are not filtered.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Signals with other calls than those below.
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// The same, of calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const UNUSED_HERE: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const UNUSED_HERE: &[c_long] = &[];

/// System calls that only a capture makes.
const UNUSED_AFTER_CAPTURE: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_setns,
    libc::SYS_process_vm_readv,
    libc::SYS_perf_event_open,
];

/// Whether a capture still runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Capture,
    After,
}

/// Denies system calls to all threads, for good.
///
/// Owners of files can be changed to `owners` only.
pub(super) fn deny(phase: Phase, owners: &[u32]) -> Result<(), Error> {
    apply_filter_all_threads(&program(phase, owners)?)
}

pub(super) fn program(phase: Phase, owners: &[u32]) -> Result<BpfProgram, Error> {
    let after = match phase {
        Phase::Capture => &[],
        Phase::After => UNUSED_AFTER_CAPTURE,
    };
    let always = UNUSED.iter().chain(UNUSED_HERE).chain(after);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        always.map(|call| (*call, Vec::new())).collect();
    for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, any_bit(2, [libc::PROT_EXEC as u64])?);
    }
    // Signal 0 tests whether a process exists. `abort` sends the other one to its thread.
    let abort = libc::SIGABRT as u64;
    let sent = [
        (libc::SYS_kill, 1, 0),
        (libc::SYS_tkill, 1, abort),
        (libc::SYS_tgkill, 2, abort),
    ];
    for (call, argument, signal) in sent {
        let denied = SeccompCondition::new(argument, Dword, Ne, signal)?;
        rules.insert(call, vec![SeccompRule::new(vec![denied])?]);
    }
    // A capture lists the sockets of network namespaces.
    if phase == Phase::Capture {
        let network = libc::CLONE_NEWNET as u64;
        let others = SeccompCondition::new(1, Dword, Ne, network)?;
        rules.insert(libc::SYS_setns, vec![SeccompRule::new(vec![others])?]);
    }
    let namespaces = [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];
    rules.insert(
        libc::SYS_clone,
        any_bit(0, namespaces.map(|flag| flag as u64))?,
    );
    // Set-user-ID files, and files that all users can write.
    let modes = [libc::S_ISUID, libc::S_ISGID, libc::S_IWOTH].map(u64::from);
    rules.insert(libc::SYS_fchmod, any_bit(1, modes)?);
    let denied = owners.iter();
    let denied = denied.map(|owner| SeccompCondition::new(1, Dword, Ne, u64::from(*owner)));
    let denied = SeccompRule::new(denied.collect::<Result<_, _>>()?)?;
    rules.insert(libc::SYS_fchown, vec![denied]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    let rules: BpfProgram = filter.try_into()?;
    Ok(BEFORE_RULES.into_iter().chain(rules).collect())
}

/// Returns rules that match a call if an argument has one of these bits.
fn any_bit<const N: usize>(argument: u8, bits: [u64; N]) -> Result<Vec<SeccompRule>, Error> {
    let rules = bits.map(|bit| {
        let is_set = SeccompCondition::new(argument, Dword, MaskedEq(bit), bit)?;
        SeccompRule::new(vec![is_set])
    });
    Ok(rules.into_iter().collect::<Result<_, _>>()?)
}

/// Denies all calls of the x32 ABI, which have other numbers (`__X32_SYSCALL_BIT` of Linux'
/// `asm/unistd.h`), and `clone3`, whose flags a filter cannot see: C libraries call `clone` then.
const BEFORE_RULES: [sock_filter; 5] = [
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0x4000_0000),
    fails_with(libc::EPERM),
    instruction(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        1,
        libc::SYS_clone3 as u32,
    ),
    fails_with(libc::ENOSYS),
];

const fn fails_with(error: i32) -> sock_filter {
    let code = libc::BPF_RET | libc::BPF_K;
    instruction(code, 0, libc::SECCOMP_RET_ERRNO | error as u32)
}

/// `skipped` instructions follow that are not executed if a condition is false.
const fn instruction(code: u32, skipped: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: skipped,
        k,
    }
}
