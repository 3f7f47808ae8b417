//! Names that are used twice.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<audit>", ttl = "300s", on_busy = defer("30s"))]
async fn audit(audit: u64) -> Result<u64, LockError> {
    Ok(audit)
}

#[distributed_lock(key = "order:<busy>", ttl = "300s", on_busy = defer("30s"))]
async fn r#match(busy: u64, lock: u64, r#type: String, r#match: u8) -> Result<u64, LockError> {
    Ok(busy + lock + r#type.len() as u64 + u64::from(r#match))
}

#[test]
fn an_argument_may_have_the_name_of_its_function_or_of_ours() {
    let _ = (audit_deferred(), match_deferred());
}
