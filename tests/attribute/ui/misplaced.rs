//! The attribute on what is no item.

use lockmacro_runtime::distributed_lock;

fn async_block() {
    let audit = #[distributed_lock(key = "order")]
    async { 5 };
    drop(audit);
}

fn block() {
    #[distributed_lock(key = "order")]
    {
        println!("audited");
    }
}

fn call() {
    #[distributed_lock(key = "order")]
    audit();
}

fn audit() {}

fn closure() {
    let audit = #[distributed_lock(key = "order")]
    || 5;
    audit();
}

fn loops() {
    #[distributed_lock(key = "order")]
    for id in 0..5 {
        println!("{id}");
    }
}

fn statement() {
    #[distributed_lock(key = "order")]
    let audited = 5;
    println!("{audited}");
}

fn main() {}
