use lockmacro_runtime::distributed_lock;

fn main() {
    #[distributed_lock(key = "order")]
    for id in 0..5 {
        println!("{id}");
    }
}
