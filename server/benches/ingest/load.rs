//! The load generator, a separate process: every connection sends one request after another.

use std::time::{Duration, Instant};

use eigenveil_shared::{
    codec::{self, ReportFormat},
    enrolment::{Admission, Enrolment, Frame, ParticipantToken, TOKEN_LEN},
    mechanism::PayloadKind,
    report::{Report, ReportId},
    study::{StudyParams, from_hex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[derive(Clone)]
struct Template {
    request: Vec<u8>,
    ids: Vec<usize>,
    /// Where its tokens begin, for a study that wants them.
    tokens: Option<usize>,
    /// Distance from an identifier to its seed, for seed payloads.
    seed_behind: Option<usize>,
}

impl Template {
    fn new(path: &str, media_type: &str, body: &[u8]) -> Self {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        Self {
            request,
            ids: Vec::new(),
            tokens: None,
            seed_behind: None,
        }
    }

    /// One raw dense report for the rivals, behind its identifier.
    fn raw(path: &str, p: usize) -> Self {
        let mut body = vec![0; 16];
        body.extend(0.5_f32.to_le_bytes().repeat(p * (p + 1) / 2));
        let mut template = Self::new(path, "application/octet-stream", &body);
        template.ids = vec![template.request.len() - body.len()];
        template
    }

    /// One report of a study, or a batch.
    fn reports(path: &str, canonical: &str, batch: usize, enrolment: Enrolment) -> Self {
        let params = StudyParams::from_canonical(&from_hex(canonical).unwrap()).unwrap();
        let format = ReportFormat::new(&params);
        let payload = 0.5_f32.to_le_bytes().repeat(format.payload_len() / 4);
        let id = ReportId::from_parts(1 << 40, [0; 16]);
        let (reports, first, stride, behind) = if batch == 1 {
            let report = codec::encode_report(&Report {
                id,
                fingerprint: format.fingerprint(),
                payload,
            });
            (report, 34, 0, 24)
        } else {
            let reports = (0..batch).map(|_| (id, payload.as_slice()));
            let reports = codec::encode_batch(&format, reports).unwrap();
            let stride = 16 + payload.len();
            let first = reports.len() - batch * stride;
            (reports, first, stride, 16)
        };
        let frame = Frame::new(enrolment, batch > 1);
        let unknown = Admission::Token(ParticipantToken::from_bytes([0; TOKEN_LEN]));
        let length = reports.len();
        let body = frame.write(&vec![&unknown; batch], reports).unwrap();
        let mut template = Self::new(path, frame.media_type(), &body);
        let begin = template.request.len() - length;
        template.tokens = (enrolment == Enrolment::Token).then_some(begin - batch * TOKEN_LEN);
        template.ids = (0..batch).map(|i| begin + first + i * stride).collect();
        template.seed_behind = (format.payload_kind() == Some(PayloadKind::Seed)).then_some(behind);
        template
    }

    /// The next tokens; false if there are not enough left.
    fn admit(&mut self, tokens: &mut &[u8]) -> bool {
        let Some(at) = self.tokens else { return true };
        let length = self.ids.len() * TOKEN_LEN;
        let Some(next) = tokens.split_off(..length) else {
            return false;
        };
        self.request[at..at + length].copy_from_slice(next);
        true
    }

    /// New identifiers, time-ordered like a device's: time first, then distinct random bytes.
    fn renew(&mut self, connection: u64, count: &mut u64) {
        for &at in &self.ids {
            *count += 1;
            let mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = [0; 16];
            random[..8].copy_from_slice(&mixed.to_le_bytes());
            random[8..].copy_from_slice(&(connection << 40 | *count).to_be_bytes());
            let id = ReportId::from_parts(1_700_000_000_000 + *count, random);
            self.request[at..at + 16].copy_from_slice(&id.0);
            if let Some(behind) = self.seed_behind {
                self.request[at + behind..at + behind + 8].copy_from_slice(&mixed.to_be_bytes());
            }
        }
    }
}

/// Reads one whole response, whose status must be 200 or so.
async fn read_response(stream: &mut TcpStream, buffer: &mut Vec<u8>) {
    buffer.clear();
    let end = loop {
        assert!(stream.read_buf(buffer).await.unwrap() > 0);
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
    };
    assert!(
        buffer.starts_with(b"HTTP/1.1 20"),
        "{}",
        String::from_utf8_lossy(buffer)
    );
    // None with 204. Looked for in bytes, since the client shares the server's processors.
    let name = b"content-length: ";
    let length = buffer[..end].split(|&byte| byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        found.eq_ignore_ascii_case(name).then_some(value)
    });
    let length = std::str::from_utf8(length.unwrap_or(b"0")).unwrap();
    let length: usize = length.trim().parse().unwrap();
    while buffer.len() < end + length {
        assert!(stream.read_buf(buffer).await.unwrap() > 0);
    }
}

/// `ADDRESS[,ADDRESS…] PATH raw:P|CANONICAL CONNECTIONS SECONDS BATCH REPORTS [TOKENS]`: runs until the time is up or, if
/// REPORTS is not 0, until that many were sent, or until the tokens in the file are used up. Prints how many were answered.
pub(crate) fn run(arguments: &[String]) {
    let [
        address,
        path,
        what,
        connections,
        seconds,
        batch,
        reports,
        files @ ..,
    ] = arguments
    else {
        panic!("seven arguments");
    };
    let tokens: Option<&[u8]> = files
        .first()
        .map(|file| std::fs::read(file).unwrap().leak() as _);
    let enrolment = tokens.map_or(Enrolment::Open, |_| Enrolment::Token);
    let batch: usize = batch.parse().unwrap();
    let template = match what.strip_prefix("raw:") {
        Some(p) => Template::raw(path, p.parse().unwrap()),
        None => Template::reports(path, what, batch, enrolment),
    };
    let connections: u64 = connections.parse().unwrap();
    let addresses: Vec<&str> = address.split(',').collect();
    let most = match reports.parse::<u64>().unwrap() {
        0 => u64::MAX,
        reports => reports.div_ceil(connections * batch as u64),
    };
    let deadline = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let acknowledged = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for connection in 0..connections {
            let address = addresses[connection as usize % addresses.len()].to_owned();
            let mut template = template.clone();
            let tokens = tokens.unwrap_or_default();
            let share = tokens.len() / TOKEN_LEN / connections as usize * TOKEN_LEN;
            let mut own_tokens = &tokens[connection as usize * share..][..share];
            tasks.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut buffer = Vec::with_capacity(4_096);
                let (mut count, mut requests) = (0, 0);
                while requests < most
                    && Instant::now() < deadline
                    && template.admit(&mut own_tokens)
                {
                    template.renew(connection, &mut count);
                    stream.write_all(&template.request).await.unwrap();
                    read_response(&mut stream, &mut buffer).await;
                    requests += 1;
                }
                requests * batch as u64
            });
        }
        let mut acknowledged = 0;
        while let Some(task) = tasks.join_next().await {
            acknowledged += task.unwrap();
        }
        acknowledged
    });
    println!("{acknowledged}");
}
