//! Programs as tests start them: without what the caller's environment would change.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// A program with no `ISOBIT_*` variable of the caller's, nothing to read, and a cache directory of the tests' own, so
/// that nothing measured here reaches the user's, and the other way round. Kernels are not measured, which would take
/// seconds for every model: whoever tests that asks for it.
pub fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut c = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ISOBIT_") {
            c.env_remove(name);
        }
    }
    c.stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env("ISOBIT_TUNE", "off")
        .env("ISOBIT_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    // Mesa's Vulkan layer otherwise complains of a missing display on our stderr
    c.env("NODEVICE_SELECT", "1");
    c
}

/// isobit with these arguments.
pub fn isobit<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Command {
    let mut c = quiet(env!("CARGO_BIN_EXE_isobit"));
    c.args(args);
    c
}
