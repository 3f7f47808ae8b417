//! A gRPC method: ABORTED while another call is at the same order, with a delay for gRPC's retries.
//!
//! `cargo run -p lockmacro-recipes --example tonic`, then the call in `tonic/shop.proto`, twice.

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use shop::{Order, Report, orders_server::Orders, orders_server::OrdersServer};
use tonic::{Request, Response, Status, transport::Server};

#[path = "tonic/shop.rs"] // Stands for `tonic::include_proto!("shop")` and its build script.
mod shop;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<String, LockError> {
    tokio::time::sleep(std::time::Duration::from_millis(500)).await; // the work
    Ok(format!("order {id} is audited"))
}

struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    async fn audit(&self, order: Request<Order>) -> Result<Response<Report>, Status> {
        Ok(Response::new(Report { text: audit(order.into_inner().id).await.map_err(status)? }))
    }
}

fn status(error: LockError) -> Status {
    let mut status = match error.http_status() {
        423 => Status::aborted(error.public_message()),
        503 => Status::unavailable(error.public_message()),
        400 | 422 => Status::invalid_argument(error.public_message()),
        // `Deferred` of a function that defers is a success: answer it before this.
        _ => {
            eprintln!("{error}"); // The client is not told the details.
            Status::internal(error.public_message())
        }
    };
    if let Some(secs) = error.retry_after_secs() {
        status.metadata_mut().insert("grpc-retry-pushback-ms", (secs * 1000).into());
    }
    status
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    let shop = Server::builder().add_service(OrdersServer::new(Shop));
    Ok(shop.serve("127.0.0.1:50051".parse()?).await?)
}

#[tokio::test]
async fn the_second_call_is_told_when_to_come_again() {
    use tonic::transport::server::TcpIncoming;
    LockManager::isolated_memory().install().expect("the first one");
    let port = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("http://{}", port.local_addr().expect("bound"));
    tokio::spawn(Server::builder().add_service(OrdersServer::new(Shop)).serve_with_incoming(port));
    let client = shop::orders_client::OrdersClient::connect(url).await.expect("it listens");
    let audit = async |id| client.clone().audit(Order { id }).await;
    let (one, other, third) = tokio::join!(audit(42), audit(42), audit(43));
    let refused = one.err().xor(other.err()).expect("one of the two");
    assert_eq!(refused.code(), tonic::Code::Aborted);
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").expect("a delay"), "5000");
    assert_eq!(third.expect("another order").into_inner().text, "order 43 is audited");
}
