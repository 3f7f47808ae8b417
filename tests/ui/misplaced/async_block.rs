use lockmacro_runtime::distributed_lock;

fn main() {
    let audit = #[distributed_lock(key = "order")]
    async { 5 };
    drop(audit);
}
