//! One number a component: the page, the command line, the tables, the scree plot and the JSON agree, over two hundred
//! studies with populations of many kinds.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use eigenveil_shared::{
    api::StudyDocument,
    codec::{self, StudyShape},
    estimate::{Estimate, Verdict},
    preprocess::Row,
    report::ReportId,
};
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha8Rng};
use reqwest::{Client, header, redirect::Policy};
use scraper::{Html, Selector};
use serde_json::{Value, json};

use crate::program::ServerProcess;

const STUDIES: u64 = 200;
/// Reports of a study, each batch a commit and so a bucket.
const BATCHES: u64 = 8;
const BATCH: u64 = 150;
/// sin² of 45°.
const OPEN: f64 = 0.5;

/// Nearly normal: the sum of twelve uniform numbers.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

/// Rows of one kind of population.
struct Population {
    mean: Vec<f64>,
    deviations: Vec<f64>,
}

impl Population {
    /// Of six kinds in turn: falling variances, two equal ones, three equal ones, one alone, nothing at all, a mean.
    fn new(number: u64, p: usize) -> Self {
        let leading: &[f64] = match number % 6 {
            0 => &[4.0, 2.0, 1.2],
            1 => &[3.0, 3.0],
            2 => &[3.0, 2.9, 2.8],
            3 => &[5.0],
            4 => &[],
            _ => &[0.6],
        };
        let mut deviations = vec![0.5; p];
        deviations[..leading.len().min(p)].copy_from_slice(&leading[..leading.len().min(p)]);
        let mean = vec![if number % 6 == 5 { 2.0 } else { 0.0 }; p];
        Self { mean, deviations }
    }

    fn row(&self, rng: &mut ChaCha8Rng) -> Row {
        let pairs = self.mean.iter().zip(&self.deviations);
        Row::new(pairs.map(|(m, d)| m + d * normal(rng)).collect())
    }
}

/// A server with somebody who looks at its pages.
struct World {
    server: ServerProcess,
    http: Client,
    token: String,
    cookie: String,
}

impl World {
    async fn new(data: &Path) -> Self {
        let server = ServerProcess::start(data);
        let token = std::fs::read_to_string(server.token_file()).unwrap();
        let token = token.trim().to_owned();
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        let mut world = Self {
            server,
            http,
            token,
            cookie: String::new(),
        };
        let url = format!("{}/login", world.server.url);
        let answer = world.http.get(&url).send().await.unwrap();
        world.cookie = cookie(&answer);
        let page = answer.text().await.unwrap();
        let (_, rest) = page.split_once("name=\"form_key\" value=\"").unwrap();
        let (key, _) = rest.split_once('"').unwrap();
        let body = format!("token={}&form_key={key}", world.token);
        let form = world.http.post(&url).header(header::COOKIE, &world.cookie);
        let form = form.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = form.body(body).send().await.unwrap();
        assert_eq!(answer.status(), 303);
        world.cookie = cookie(&answer);
        world
    }

    async fn study(&self, number: u64, p: usize) -> StudyDocument {
        let mechanism = ["symmetric-gaussian", "double-cap"][(number / 6 % 2) as usize];
        // Beyond 8 a report of double-cap takes ten thousand tries.
        let epsilon = [4.0, 6.0, 8.0][(number / 12 % 3) as usize];
        let mut design = json!({
            "name": format!("study {number}"), "dimension": p, "mechanism": mechanism,
            "epsilon": epsilon,
        });
        if mechanism == "symmetric-gaussian" {
            design["delta"] = 1e-6.into();
        }
        if number % 5 == 4 {
            design["norm"] = json!({"kind": "clip", "radius": 6.0});
        }
        let url = format!("{}/v1/studies", self.server.url);
        let request = self.http.post(url).bearer_auth(&self.token);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = request.body(design.to_string()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 201, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Reports as devices make them, but from a seed.
    async fn take_part(&self, study: &StudyDocument, number: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let people = Population::new(number, study.params.dimension());
        let preprocessor = study.params.preprocessor();
        for _ in 0..BATCHES {
            let reports: Vec<(ReportId, Vec<u8>)> = (0..BATCH)
                .map(|_| {
                    let row = preprocessor.prepare(&people.row(&mut rng)).unwrap();
                    let payload = study.params.mechanism().perturb_with(&row, &mut rng);
                    let mut random = [0; 16];
                    rng.fill_bytes(&mut random);
                    (ReportId::from_parts(1_700_000_000_000, random), payload)
                })
                .collect();
            let pairs = reports
                .iter()
                .map(|(id, payload)| (*id, payload.as_slice()));
            let body = codec::encode_batch(&StudyShape::new(&study.params), pairs).unwrap();
            let url = format!("{}/v1/studies/{}/reports", self.server.url, study.id);
            let request = self.http.post(url).body(body).header(
                header::CONTENT_TYPE,
                eigenveil_shared::api::REPORT_BATCH_MEDIA_TYPE,
            );
            assert_eq!(request.send().await.unwrap().status(), 200);
        }
    }

    async fn ask(&self, study: &StudyDocument, number: u64) {
        let mut request = json!({ "k": components(number) });
        if number % 10 == 9 {
            request["sparse"] = json!({ "refit": true });
        }
        let url = format!("{}/v1/studies/{}/estimates", self.server.url, study.id);
        let asked = self.http.post(url).bearer_auth(&self.token);
        let asked = asked.header(header::CONTENT_TYPE, "application/json");
        let answer = asked.body(request.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 202);
    }

    async fn page(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.server.url));
        let answer = request.header(header::COOKIE, &self.cookie).send();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    }
}

/// How many components this study is asked for.
fn components(number: u64) -> u64 {
    1 + number % 4
}

fn cookie(answer: &reqwest::Response) -> String {
    let set = answer.headers()[header::SET_COOKIE].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

/// Variances by the name of their component: "2", or "2–4" of a group.
type Variances = BTreeMap<String, String>;

/// The first number of a text such as "0.123 ± 0.004".
fn first_number(text: &str) -> String {
    text.split_whitespace().next().unwrap().to_owned()
}

fn on_the_page(html: &str) -> Variances {
    let html = Html::parse_document(html);
    let [heads, rows, cells] = ["#components thead th", "#components tbody tr", "th, td"]
        .map(|css| Selector::parse(css).unwrap());
    let heads: Vec<String> = html
        .select(&heads)
        .map(|head| head.text().collect())
        .collect();
    let column = heads.iter().position(|head| head == "Variance").unwrap();
    html.select(&rows)
        .map(|row| {
            let cells: Vec<String> = row
                .select(&cells)
                .map(|cell| cell.text().collect())
                .collect();
            (cells[0].clone(), first_number(&cells[column]))
        })
        .collect()
}

fn on_the_terminal(text: &str) -> Variances {
    let lines = text.lines().skip_while(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(..2) != Some(&["component", "variance"])
    });
    lines
        .skip(1)
        .map_while(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let value = words.next()?;
            name.starts_with(|c: char| c.is_ascii_digit())
                .then(|| value.parse::<f64>().ok().map(|_| (name, value.to_owned())))?
        })
        .collect()
}

fn in_the_table(csv: &str) -> Variances {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heads = lines.next().unwrap();
    let column = heads.iter().position(|head| *head == "variance").unwrap();
    lines
        .map(|line| (line[0].to_owned(), line[column].to_owned()))
        .collect()
}

/// What the points say of themselves: "Component 2: 0.123, above the noise floor".
fn in_the_scree(svg: &str, k: usize) -> Variances {
    (1..=k)
        .map(|j| {
            let (_, rest) = svg.split_once(&format!("<title>Component {j}: ")).unwrap();
            let (value, _) = rest.split_once([',', '<']).unwrap();
            (j.to_string(), value.to_owned())
        })
        .collect()
}

/// Whether a number as written is this one, to the four digits that every way gives at least.
fn says(written: &str, value: f64) -> bool {
    let unit = if value < 1.0 { 1e-4 } else { 1e-3 };
    let near = |number: f64| (number - value).abs() <= 0.51 * unit;
    written.parse::<f64>().is_ok_and(near)
}

/// Every variance of the JSON is the one that each other way shows.
fn agree(number: u64, estimate: &Estimate, ways: &[(&str, Variances)]) {
    for (j, component) in estimate.components.iter().enumerate() {
        let value = component.variance.unwrap();
        for (way, shown) in ways {
            let written = &shown[&(j + 1).to_string()];
            assert!(
                says(written, value),
                "study {number}, component {}: {way} says {written}, the JSON {value}",
                j + 1
            );
        }
    }
    for group in &estimate.groups {
        for (way, shown) in ways {
            if let Some(written) = shown.get(&group.range()) {
                assert!(says(written, group.variance), "{way}: {written}, {group:?}");
            }
        }
    }
}

/// The heads of the loadings have the verdict that everything else has: the group's, where there is one.
fn heads_agree(estimate: &Estimate, csv: &str) {
    let heads = csv.lines().next().unwrap().split(',').skip(1);
    for ((j, component), head) in estimate.components.iter().enumerate().zip(heads) {
        let number = j + 1;
        let wanted = match estimate.group_of(j) {
            Some(group) => {
                let verdict = group.verdict.as_str();
                format!("component_{number} ({} together {verdict})", group.range())
            }
            None => format!("component_{number} ({})", component.verdict.as_str()),
        };
        assert_eq!(head, wanted);
    }
}

/// No line of an estimate contradicts another one.
fn is_consistent(number: u64, estimate: &Estimate) {
    for (j, component) in estimate.components.iter().enumerate() {
        let variance = component.variance.unwrap();
        assert!(variance >= 0.0, "study {number}: {component:?}");
        if let Some((share, total)) = component
            .explained_variance_ratio
            .zip(estimate.total_variance.filter(|total| *total > 0.0))
        {
            let exact = (variance / total).clamp(0.0, 1.0);
            assert!(
                (share - exact).abs() < 1e-12,
                "study {number}: {component:?}"
            );
        }
        let left = component.direction_se.map_or(1.0, |sine| 1.0 - sine * sine);
        assert!(component.alignment() <= left + 1e-12);
        assert_eq!(component.alignment, Some(component.alignment()));
        assert!(component.alignment() <= component.expected_alignment);
        let open = left < 1.0 - OPEN;
        let group = estimate.group_of(j);
        assert!(
            !open || component.verdict != Verdict::Above || group.is_some(),
            "study {number}: component {} is above, in a direction that nobody knows: {component:?}",
            j + 1
        );
    }
    for group in &estimate.groups {
        assert!(group.first < group.last && group.last <= estimate.k);
        let open = group.span_se.is_some_and(|sine| sine * sine > OPEN);
        assert!(!open || group.verdict != Verdict::Above, "{group:?}");
    }
}

/// Two hundred studies from fixed seeds. Nothing here is left to chance: what is compared is said five times of one
/// estimate.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_read_an_estimate_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(&folder.path().join("data")).await;
    let (mut above, mut grouped, mut means, mut open) = (0, 0, 0, 0);
    let mut studies = Vec::new();
    for number in 0..STUDIES {
        let study = world.study(number, 4 + (number % 5) as usize).await;
        world.take_part(&study, number).await;
        // All are done by the time the first one is fetched: nothing waits for the next look at a job.
        world.ask(&study, number).await;
        studies.push(study);
    }
    for (number, study) in (0..STUDIES).zip(&studies) {
        let out = folder.path().join("out");
        let k = components(number).to_string();
        let mut arguments = vec!["estimate", "--study", &study.id, "--number", "1", "--wait"];
        arguments.extend(["--out", out.to_str().unwrap()]);
        let said = world.server.cli(&arguments);
        assert!(said.status.success(), "{said:?}");
        let text = String::from_utf8(said.stdout).unwrap();
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        let estimate: Estimate = serde_json::from_str(&read("estimate.json")).unwrap();
        assert_eq!(estimate.components.len().to_string(), k);

        let path = format!("/studies/{}", study.id);
        let page = world.page(&path).await;
        let picture = world.page(&format!("{path}/estimates/1/scree.svg")).await;
        let ways = [
            ("the page", on_the_page(&page)),
            ("the command line", on_the_terminal(&text)),
            ("summary.csv", in_the_table(&read("summary.csv"))),
            ("scree.svg", in_the_scree(&read("scree.svg"), estimate.k)),
            ("the page's picture", in_the_scree(&picture, estimate.k)),
        ];
        agree(number, &estimate, &ways);
        is_consistent(number, &estimate);
        heads_agree(&estimate, &read("components.csv"));
        let free = estimate.k.min(estimate.p - estimate.k);
        let wanted = format!("of at most {:.2}", (2.0 * free as f64).sqrt());
        assert!(text.contains(&wanted), "{wanted} is not in {text}");

        above += estimate
            .components
            .iter()
            .filter(|c| c.verdict == Verdict::Above)
            .count();
        grouped += estimate.groups.len();
        open += estimate
            .components
            .iter()
            .filter(|c| c.direction_se > Some(0.71))
            .count();
        // Only studies of the sixth kind have a mean, and every study without centres may be said to.
        let mean = estimate
            .warnings
            .iter()
            .any(|w| w.contains("probably the mean"));
        means += usize::from(mean);
        if mean {
            assert!(!text.contains("participants would be needed"), "{text}");
        }
    }
    println!("{above} components above, {grouped} groups, {open} open directions, {means} means");
    // The populations are such that each of these is there to be told.
    assert!(above > 100 && grouped > 10 && open > 20 && means > 10);
}

/// A second estimate into the same directory takes away what the first one left there, and nothing else.
#[test]
fn nothing_of_an_earlier_run_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let study = server.create_study(&["--p", "6", "--epsilon", "8"]);
    let rows: String = (0..400).fold(String::new(), |mut text, i| {
        let x = f64::from(i % 7) - 3.0;
        let _ = writeln!(text, "{x},{},0.1,0.2,-0.1,0.3", 0.5 * x);
        text
    });
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, rows).unwrap();
    let report = [
        "report", "--json", "--header", "no", "--study", &study, "--rows",
    ];
    server.cli_json(&[&report[..], &[file.to_str().unwrap()]].concat());
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    // Somebody's own, one with the name of a picture that only a path has.
    for own in ["notes.txt", "lambda_rows.svg"] {
        std::fs::write(out.join(own), "mine").unwrap();
    }
    let estimate = |more: &[&str]| {
        let common = [
            "estimate", "--json", "--study", &study, "--k", "2", "--wait", "--out",
        ];
        let all = [&common[..], &[out.to_str().unwrap()], more].concat();
        let _: Value = server.cli_json(&all);
        let names = std::fs::read_dir(&out).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let plain = estimate(&[]);
    assert_eq!(std::fs::read(out.join("lambda_rows.svg")).unwrap(), b"mine");
    let sparse = estimate(&["--sparse", "--lambda", "path"]);
    assert!(sparse.contains(&"lambda_path.csv".to_owned()), "{sparse:?}");
    // What the path overwrote was its own from then on.
    let mut wanted = plain;
    wanted.retain(|name| name != "lambda_rows.svg");
    assert_eq!(estimate(&[]), wanted);
    assert_eq!(std::fs::read(out.join("notes.txt")).unwrap(), b"mine");
}
