//! A device with its own HTTP client and its own store: the crate without its features `http` and `sqlite`.
//!
//! `cargo run -p eigenveil-examples --no-default-features --example own_transport -- \
//! http://127.0.0.1:8080 STUDY_ID FINGERPRINT STORE`

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;

use eigenveil_client::{
    Clock as _, Limits, Request, Response, Server, Study, SystemClock,
    book::{Book, Change, Step},
};
use eigenveil_shared::preprocess::Row;

type Records = BTreeMap<String, Vec<u8>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, id, pinned, path] = arguments.as_slice() else {
        return Err(
            "give the server's address, the study's identifier, its fingerprint and a file".into(),
        );
    };
    let (server, pinned): (Server, _) = (server.parse()?, pinned.parse()?);
    // Two processes must not run at once; each would make its own report.
    let lock = fs::File::create(format!("{path}.lock"))?;
    lock.lock()?;
    let study = send(&Study::request(&server, id), |response| {
        Study::read(&server, id, response, Some(pinned))
    })??;
    let mut records: Records = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Records::new(),
        read => serde_json::from_slice(&read?)?,
    };
    let mut book = match records.is_empty() {
        true => Book::new(Limits::default()),
        false => Book::load(records.clone())?,
    };
    let row = Row::new(
        (0..study.params().dimension())
            .map(|i| (i as f64).cos())
            .collect(),
    );
    if let Step::Join(change) = book.take_part(&study, &row, SystemClock.unix_ms())? {
        store(path, &mut records, &mut book, change)?;
    }
    let pending: Vec<_> = book.pending().cloned().collect();
    for entry in pending {
        let payload = records.get(&entry.payload_key());
        let request = entry.request(payload.ok_or("a report is not in the file")?.clone())?;
        let answer = match send(&request, |response| request.answer(response)) {
            Ok(answer) => answer,
            Err(error) => request.no_response(error),
        };
        if let Some(error) = &answer.error {
            eprintln!("{error}");
        }
        for (report, result) in request.reports().iter().zip(&answer.results) {
            if let Some(change) = book.settle(*report, result)? {
                store(path, &mut records, &mut book, change)?;
            }
        }
    }
    println!("{}", book.receipt());
    Ok(())
}

/// All of the change or nothing, on the disk: a new file in the place of the old one. (One process at a time, by the
/// lock. A store that several may write compares `write.expected_revision` with its revision, in the same transaction.)
fn store(
    path: &str,
    records: &mut Records,
    book: &mut Book,
    change: Change,
) -> Result<(), Box<dyn Error>> {
    let write = change.write()?;
    records.extend(write.put);
    records.retain(|key, _| !write.delete.contains(key));
    let new = format!("{path}.new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // It holds tokens, and reports that nobody has seen.
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(&serde_json::to_vec(&records)?)?;
    file.sync_all()?;
    fs::rename(new, path)?;
    // Sync the directory, so that the new name is durable.
    let folder = Path::new(path)
        .parent()
        .filter(|folder| *folder != Path::new(""));
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(book.stored(change)?)
}

/// Plain HTTP/1.1 over one connection, which is enough for a server on this machine.
fn send<T>(request: &Request, read: impl FnOnce(&Response<'_>) -> T) -> Result<T, Box<dyn Error>> {
    let address = request
        .url
        .strip_prefix("http://")
        .ok_or("only http:// is spoken here")?;
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "{} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n",
        request.method.as_str()
    )?;
    for (name, value) in &request.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "content-length: {}\r\n\r\n", request.body.len())?;
    stream.write_all(&request.body)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .ok_or("no HTTP response")?;
    let (head, body) = (std::str::from_utf8(&bytes[..end])?, &bytes[end + 4..]);
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .ok_or("no status")?;
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    Ok(read(&Response {
        status: status.parse()?,
        headers: &headers,
        body,
        now: None,
    }))
}
