//! What a run was, in a file that anybody can check: receipts, and runs that are kept and replayed.
