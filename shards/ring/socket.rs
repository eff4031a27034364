//! Sockets: non-blocking calls that are made inline.

use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use bytes::BytesMut;

use crate::error::{checked, retry};
use crate::file::{OpenFile, file_offset};

/// How many pieces of memory one send takes: more make a call longer but not cheaper.
const SEND_PIECES_MAX: usize = 64;

/// A connected (or connecting) TCP socket, non-blocking, without Nagle's delay.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Takes a descriptor that a ring has accepted.
    ///
    /// # Errors
    /// When the kernel refuses an option, as it does when the peer is gone already.
    pub fn accepted(fd: OwnedFd) -> io::Result<Self> {
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Begins to connect; the connection is there once the socket is writable and
    /// [`Socket::connect_result`] says so.
    ///
    /// # Errors
    /// What the kernel knows at once: no route, no free port, too many files.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = new_socket(address)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let (raw, length) = RawAddress::new(address);
        let result = retry(|| {
            // SAFETY: `raw` holds an address of `length` bytes and lives until the call returns.
            let result = unsafe { libc::connect(stream.as_raw_fd(), raw.as_ptr(), length) };
            checked(result as isize)
        });
        match result {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self(stream)),
        }
    }

    /// What came of [`Socket::connect`].
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect_result(&self) -> io::Result<()> {
        match self.0.take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The other side.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    /// Appends what has arrived to `buffer`, as far as it has room. 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; else the connection has failed.
    pub fn receive(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = buffer.spare_capacity_mut();
        debug_assert!(!room.is_empty(), "receiving without room looks like the end of the stream");
        let received = retry(|| {
            // SAFETY: the kernel writes at most `room.len()` bytes into memory that is ours alone.
            checked(unsafe {
                libc::recv(self.0.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0)
            })
        })?;
        // SAFETY: the kernel has just initialised so many bytes behind the buffer's length.
        unsafe { buffer.set_len(buffer.len() + received) };
        Ok(received)
    }

    /// Sends the pieces one behind the other; the kernel may take less than all.
    ///
    /// # Errors
    /// `WouldBlock` when the kernel takes nothing now; else the connection has failed.
    pub fn send<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = [empty; SEND_PIECES_MAX];
        let mut count = 0;
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            vector.iov_base = piece.as_ptr().cast_mut().cast();
            vector.iov_len = piece.len();
            count += 1;
        }
        // SAFETY: all zeros is a message without address and control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = count as _;
        retry(|| {
            // SAFETY: `message` names `count` vectors, whose memory is borrowed for `'a`, and the
            // kernel only reads it.
            checked(unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, libc::MSG_NOSIGNAL) })
        })
    }

    /// Sends a range of a file from the page cache; the kernel may take less than all. 0 means that
    /// the file ends at `position`.
    ///
    /// # Errors
    /// `WouldBlock` when the kernel takes nothing now; else the connection or the file has failed.
    pub fn send_file(&self, file: &OpenFile, position: u64, length: usize) -> io::Result<usize> {
        let mut offset = file_offset(position)?;
        retry(|| {
            // SAFETY: `offset` lives until the call returns; both descriptors are open.
            checked(unsafe {
                libc::sendfile(self.0.as_raw_fd(), file.as_fd().as_raw_fd(), &mut offset, length)
            })
        })
    }

    /// Ends the connection in both directions, whoever else still holds the socket.
    pub fn shut_down(&self) {
        // It fails when the peer has ended it already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A listening TCP socket, non-blocking.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens at `address`, port 0 taking a free one. `SO_REUSEADDR` lets a restarted node take
    /// its port while connections of the last one linger, as Java does; a port that another process
    /// listens on is refused, since `SO_REUSEPORT` is not set.
    ///
    /// # Errors
    /// The address is taken, not one of this host's, or not permitted.
    pub fn open(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let socket = new_socket(address)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if address.is_ipv6() {
            // The wildcard takes IPv4 too, as a Java server socket does.
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
        }
        let (raw, length) = RawAddress::new(address);
        // SAFETY: `raw` holds an address of `length` bytes and lives until the call returns.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), raw.as_ptr(), length) };
        checked(bound as isize)?;
        // SAFETY: the call takes two numbers and touches no memory.
        checked(unsafe { libc::listen(socket.as_raw_fd(), backlog) } as isize)?;
        Ok(Self(TcpListener::from(socket)))
    }

    /// The address that was really taken.
    ///
    /// # Errors
    /// None that a listening socket is known for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes three numbers and touches no memory.
    let fd = unsafe { libc::socket(family, kind, 0) };
    checked(fd as isize)?;
    // SAFETY: the descriptor was made just now, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is an `int` of `length` bytes and lives until the call returns.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
    };
    checked(result as isize).map(drop)
}

/// An address as the kernel takes it.
enum RawAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl RawAddress {
    fn new(address: SocketAddr) -> (Self, libc::socklen_t) {
        match address {
            SocketAddr::V4(address) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (Self::V4(raw), mem::size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(address) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                (Self::V6(raw), mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            Self::V4(raw) => (&raw const *raw).cast(),
            Self::V6(raw) => (&raw const *raw).cast(),
        }
    }
}
