use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", map_err = std::io::Error::other)]
async fn audit(id: u64) -> u64 {
    id
}

fn main() {}
