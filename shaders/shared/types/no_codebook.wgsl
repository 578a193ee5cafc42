// Types that read nothing of workgroup memory.
fn prepare(thread: u32, threads: u32) {
}
