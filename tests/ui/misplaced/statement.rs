use lockmacro_runtime::distributed_lock;

fn main() {
    #[distributed_lock(key = "order")]
    let audited = 5;
    println!("{audited}");
}
