//! A handler of actix-web: 423 Locked with `Retry-After` while another request has the order.
//!
//! `cargo run -p lockmacro-recipes --example actix`, and twice at once:
//! `curl -i -X POST localhost:3000/orders/42/audit`

use std::{error::Error, io, net::TcpListener};

use actix_web::http::{StatusCode, header::RETRY_AFTER};
use actix_web::{App, HttpResponse, HttpServer, dev::Server, error::InternalError, web};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::{Duration, sleep};

/// Async, because a worker of actix is one thread. A sync lock belongs in `web::block`.
#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<String, LockError> {
    sleep(Duration::from_millis(500)).await; // the work
    Ok(format!("order {id} is audited"))
}

async fn handler(id: web::Path<u64>) -> actix_web::Result<String> {
    audit(*id).await.map_err(refusal)
}

fn refusal(error: LockError) -> actix_web::Error {
    let status = StatusCode::from_u16(error.http_status());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    if let Some(secs) = error.retry_after_secs() {
        response.insert_header((RETRY_AFTER, secs));
    }
    let response = response.body(error.public_message().to_owned());
    InternalError::from_response(error, response).into()
}

fn serve(listener: TcpListener) -> io::Result<Server> {
    let app = || App::new().route("/orders/{id}/audit", web::post().to(handler));
    Ok(HttpServer::new(app).workers(2).listen(listener)?.run())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    Ok(serve(TcpListener::bind("127.0.0.1:3000")?)?.await?)
}

#[tokio::test]
async fn the_second_request_is_told_when_to_come_again() {
    LockManager::isolated_memory().install().expect("the first one");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let orders = format!("http://{}/orders", listener.local_addr().expect("bound"));
    tokio::spawn(serve(listener).expect("it listens"));
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let audit = |id: u64| client.post(format!("{orders}/{id}/audit")).send();
    let answers = tokio::try_join!(audit(42), audit(42), audit(43));
    let (one, other, third) = answers.expect("three answers");
    let (done, refused) = if one.status() == 200 { (one, other) } else { (other, one) };
    assert_eq!([&done, &refused, &third].map(|one| one.status().as_u16()), [200, 423, 200]);
    assert_eq!(refused.headers()["retry-after"], "5");
}
