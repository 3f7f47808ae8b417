//! What `tonic-prost-build` makes of `shop.proto`, without compression, limits and interceptors.

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Order {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Report {
    #[prost(string, tag = "1")]
    pub text: String,
}

pub mod orders_server {
    use super::{Order, Report};
    use tonic::codegen::{
        Arc, Body, BoxFuture, Context, Poll, Service, StdError, async_trait, http,
    };
    use tonic::{Request, Response, Status};

    #[async_trait]
    pub trait Orders: Send + Sync + 'static {
        async fn audit(&self, request: Request<Order>) -> Result<Response<Report>, Status>;
    }

    pub struct OrdersServer<T>(Arc<T>);

    impl<T> OrdersServer<T> {
        pub fn new(inner: T) -> Self {
            Self(Arc::new(inner))
        }
    }

    impl<T> Clone for OrdersServer<T> {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> tonic::server::NamedService for OrdersServer<T> {
        const NAME: &'static str = "shop.Orders";
    }

    impl<T: Orders, B> Service<http::Request<B>> for OrdersServer<T>
    where
        B: Body + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<B>) -> Self::Future {
            let method = Audit(Arc::clone(&self.0));
            Box::pin(async move {
                Ok(match request.uri().path() {
                    "/shop.Orders/Audit" => {
                        let codec = tonic_prost::ProstCodec::default();
                        tonic::server::Grpc::new(codec).unary(method, request).await
                    }
                    _ => Status::unimplemented("no such method").into_http(),
                })
            })
        }
    }

    struct Audit<T>(Arc<T>);

    impl<T: Orders> tonic::server::UnaryService<Order> for Audit<T> {
        type Response = Report;
        type Future = BoxFuture<Response<Report>, Status>;

        fn call(&mut self, request: Request<Order>) -> Self::Future {
            let orders = Arc::clone(&self.0);
            Box::pin(async move { orders.audit(request).await })
        }
    }
}

pub mod orders_client {
    // The server calls nobody; its test does.
    #![allow(dead_code)]

    use super::{Order, Report};
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic::transport::{Channel, Endpoint, Error};
    use tonic::{IntoRequest, Response, Status};

    #[derive(Clone)]
    pub struct OrdersClient(tonic::client::Grpc<Channel>);

    impl OrdersClient {
        pub async fn connect(url: String) -> Result<Self, Error> {
            let channel = Endpoint::new(url)?.connect().await?;
            Ok(Self(tonic::client::Grpc::new(channel)))
        }

        pub async fn audit(
            &mut self,
            request: impl IntoRequest<Order>,
        ) -> Result<Response<Report>, Status> {
            let ready = self.0.ready().await;
            ready.map_err(|error| Status::unknown(error.to_string()))?;
            let path = PathAndQuery::from_static("/shop.Orders/Audit");
            self.0.unary(request.into_request(), path, tonic_prost::ProstCodec::default()).await
        }
    }
}
