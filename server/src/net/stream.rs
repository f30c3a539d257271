//! The stream of a client: what the kernel may hold of it, and how it ends.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_io_timeout::TimeoutWriter;

/// Bytes of a response that the kernel takes before the network does. The rest stays in the process, where the memory
/// budget of responses counts it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_UNSENT_BYTES: u32 = 64 << 10;

/// Sets the options that accepted streams inherit.
pub(super) fn configure(listener: &TcpListener, write_timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(listener);
    // Acknowledgements are small and must not wait.
    socket.set_tcp_nodelay(true)?;
    // Whatever is closed without a shutdown is reset, so that the kernel keeps nothing for a client that was cut off.
    socket.set_linger(Some(Duration::ZERO))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        socket.set_tcp_notsent_lowat(MAX_UNSENT_BYTES)?;
        // Of a client that has gone without a word.
        socket.set_tcp_user_timeout(Some(write_timeout))?;
    }
    Ok(())
}

/// A stream whose writes fail if the client reads nothing for this long. Reads have their own limits. Dropped without a
/// shutdown, it is reset.
pub(super) struct ClientStream(Pin<Box<TimeoutWriter<TcpStream>>>);

impl ClientStream {
    pub(super) fn new(stream: TcpStream, write_timeout: Duration) -> Self {
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(write_timeout));
        Self(Box::pin(stream))
    }
}

/// Lets the kernel send what it has after the stream is closed.
pub(super) fn close_gracefully(stream: &TcpStream) {
    if let Err(error) = SockRef::from(stream).set_linger(None) {
        tracing::debug!(%error, "SO_LINGER could not be set");
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        close_gracefully(self.0.get_ref());
        self.0.as_mut().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
