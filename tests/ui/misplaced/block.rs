use lockmacro_runtime::distributed_lock;

fn main() {
    #[distributed_lock(key = "order")]
    {
        println!("audited");
    }
}
