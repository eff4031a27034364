//! The probe says what is missing, in a process that really lacks it.

use std::process::Command;

use ring::{probe, raise_open_files_limit};

#[test]
fn here_everything_is_there() {
    let found = probe().expect("this machine runs the tests");
    assert!(found.kernel.starts_with(|first: char| first.is_ascii_digit()), "{found:?}");
    assert!(found.open_files_max > 0);
}

/// Runs an ignored test of this program in a process of its own.
fn in_own_process(before: &str, name: &str) {
    let script = format!("{before} exec \"$0\" --exact {name} --ignored --nocapture");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().expect("a path"));
    let status = command.status().expect("sh runs");
    assert!(status.success(), "{status}");
}

#[test]
fn a_sandbox_that_refuses_is_named_with_what_allows_it() {
    in_own_process("", "refused_with_eperm");
    in_own_process("", "refused_with_enosys");
}

#[test]
#[ignore = "run as a process by the test above"]
fn refused_with_eperm() {
    refuse_io_uring(libc::EPERM);
    let sentence = probe().expect_err("refused").to_string();
    assert!(sentence.contains("not permitted") && sentence.contains("seccomp"), "{sentence}");
}

#[test]
#[ignore = "run as a process by the test above"]
fn refused_with_enosys() {
    refuse_io_uring(libc::ENOSYS);
    let sentence = probe().expect_err("refused").to_string();
    assert!(sentence.contains("CONFIG_IO_URING") && sentence.contains("seccomp"), "{sentence}");
}

#[test]
fn few_open_files_are_raised_or_advised_about() {
    in_own_process("ulimit -Sn 200;", "the_soft_limit_is_raised");
    in_own_process("ulimit -n 200;", "the_hard_limit_is_advised_about");
    in_own_process("ulimit -n 200;", "no_descriptor_is_left");
}

#[test]
#[ignore = "run as a process by the test above"]
fn the_soft_limit_is_raised() {
    assert_eq!(probe().expect("works").open_files_max, 200);
    raise_open_files_limit().expect("raises");
    assert!(probe().expect("works").open_files_max > 200);
}

#[test]
#[ignore = "run as a process by the test above"]
fn the_hard_limit_is_advised_about() {
    raise_open_files_limit().expect("is as high as it may be");
    let advice = probe().expect("works").advice;
    assert!(advice[0].contains("200 files") && advice[0].contains("LimitNOFILE"), "{advice:?}");
}

#[test]
#[ignore = "run as a process by the test above"]
fn no_descriptor_is_left() {
    let mut held = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    let sentence = probe().expect_err("no descriptor").to_string();
    assert!(sentence.contains("ulimit -n"), "{sentence}");
}

/// Makes `io_uring_setup` answer `errno` to this thread from now on, as a container's filter does.
fn refuse_io_uring(errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = libc::SYS_io_uring_setup as u32;
    let is_number = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: number,
    };
    let mut program = [
        // The number of the system call is the first word of what the filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_number,
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program outlive the calls, which copy them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
    }
}
