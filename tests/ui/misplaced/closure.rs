use lockmacro_runtime::distributed_lock;

fn main() {
    let audit = #[distributed_lock(key = "order")]
    || 5;
    audit();
}
