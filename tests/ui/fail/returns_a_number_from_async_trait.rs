use lockmacro_runtime::distributed_lock;

#[async_trait::async_trait]
pub trait Audit {
    async fn audit(&self, id: u64) -> u64;
}

#[async_trait::async_trait]
impl Audit for () {
    #[distributed_lock(key = "order:<id>", ttl = "300s")]
    async fn audit(&self, id: u64) -> u64 {
        id
    }
}

fn main() {}
