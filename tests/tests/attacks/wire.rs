//! HTTP by hand, from any address of this machine, because attackers do not behave like a client library.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpSocket,
};
use tokio_rustls::TlsConnector;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    /// Connects from this address of the machine, such as `[127, 0, 0, 2]`.
    pub(crate) async fn connect(to: SocketAddr, from: [u8; 4]) -> io::Result<Self> {
        Self::connect_with(to, from, None).await
    }

    /// Connects with a receive buffer of this size, for responses that are never read.
    pub(crate) async fn connect_with(
        to: SocketAddr,
        from: [u8; 4],
        receive: Option<u32>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind((from, 0).into())?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Box::new(stream),
            buffer: Vec::new(),
        })
    }

    /// Over TLS, if there is a connector.
    pub(crate) async fn connect_over(
        tls: Option<&TlsConnector>,
        to: SocketAddr,
        from: [u8; 4],
    ) -> io::Result<Self> {
        let mut wire = Self::connect(to, from).await?;
        if let Some(tls) = tls {
            let name = "localhost".try_into().map_err(io::Error::other)?;
            wire.stream = Box::new(tls.connect(name, wire.stream).await?);
        }
        Ok(wire)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    pub(crate) async fn get(&mut self, path: &str) -> io::Result<Response> {
        self.write(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await?;
        self.response().await
    }

    /// Sends a whole request with a body; `head` is further header lines, each with its line end.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        head: &str,
        body: &[u8],
    ) -> io::Result<Response> {
        let length = body.len();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\n{head}content-length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.write(&request).await?;
        self.response().await
    }

    /// Reads one response with a Content-Length.
    pub(crate) async fn response(&mut self) -> io::Result<Response> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.ok_or_else(|| broken("no status"))?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
            .unwrap_or(0);
        while self.buffer.len() < end + length {
            self.more().await?;
        }
        let body = self.buffer[end..end + length].to_vec();
        self.buffer.drain(..end + length);
        Ok(Response { status, body })
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
