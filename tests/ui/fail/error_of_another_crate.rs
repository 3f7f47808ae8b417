use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub fn audit(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

fn main() {}
