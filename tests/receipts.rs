//! Receipts and runs: chains over logits, what is refused, what a check finds, branches and comparisons.

#[path = "common/absent.rs"]
#[allow(dead_code, reason = "what these tests do without a GPU they do on the CPU")]
mod absent;
#[path = "receipts/chains.rs"]
mod chains;
#[path = "receipts/checks.rs"]
mod checks;
#[path = "receipts/runs.rs"]
mod runs;
