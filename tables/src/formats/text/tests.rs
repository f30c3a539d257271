use eigenveil_shared::preprocess::Feature;

use super::*;
use crate::{
    cells::DecimalMark,
    encoding::encoding,
    testing::{assert_says, strings, study, with, without},
};

/// Reads as `project` and `central` do, but without refusing unreadable values.
fn local(text: &str) -> Result<RowTable> {
    parse(text.as_bytes(), false, &with(Header::Auto), None)
}

fn report(text: &str, header: Header, expected: &ExpectedColumns) -> Result<RowTable> {
    parse(text.as_bytes(), false, &with(header), Some(expected))
}

#[test]
fn with_and_without_header() {
    let with = local("height, weight\n1.5, -2e3\n0,7\n").unwrap();
    assert_eq!(with.names().unwrap(), ["height", "weight"]);
    assert_eq!(with.row(0).values(), &[1.5, -2000.0]);
    let without = local("1,2\r\n3,4").unwrap();
    assert!(without.names().is_none());
    assert_eq!(without.row(1).values(), &[3.0, 4.0]);
    // Columns without names as pandas writes them, and a byte-order mark as Excel writes it.
    assert_eq!(local("0,1,2\n5,6,7\n").unwrap().len(), 1);
    let marked = local("\u{feff}a,b\n5,6\n").unwrap();
    assert_eq!(marked.names().unwrap()[0], "a");
    let one = local("x\n5\n\n6\n").unwrap();
    assert_eq!((one.len(), one.dimension()), (3, 1));
    // A header with an unnamed index column.
    let error = local(",height\n0,1.5\n").unwrap_err().to_string();
    assert!(error.contains("`drop` 'Unnamed: 0'"), "{error}");
}

#[test]
fn delimiters_are_detected() {
    for text in [
        "a,b\n1.5,2\n",
        "a;b\n1.5;2\n",
        "a\tb\n1.5\t2\n",
        "a|b\n1.5|2\n",
        "\"a\";\"b\"\n\"1.5\";2\n",
        "1.5;2\n1.5;2\n",
        "1.5\t2\n",
    ] {
        let table = local(text).unwrap();
        assert!(table.check_readable().is_ok(), "{text:?}");
        assert_eq!(table.row(table.len() - 1).values(), &[1.5, 2.0], "{text:?}");
    }
    let colon = Settings {
        delimiter: Some(b':'),
        ..with(Header::Auto)
    };
    let table = parse(b"a:b\n1:2\n", false, &colon, None).unwrap();
    assert_eq!(table.dimension(), 2);
    let tabs = parse(b"a,b\tc\n1\t2\n", true, &Settings::default(), None).unwrap();
    assert_eq!(tabs.names().unwrap(), ["a,b", "c"]);
    // Names that contain other separators: the study's names decide.
    let expected = study(Some(&["a; b; c", "d"]), 2);
    let table = report("d,a; b; c\n1,2\n", Header::Auto, &expected).unwrap();
    assert_eq!(table.row(0).values(), &[2.0, 1.0]);
}

#[test]
fn cells_are_read_as_numbers_or_missing() {
    let cells = local("a,b,c,d,e\n1,True,FALSE,1e3,+2\n").unwrap();
    assert_eq!(cells.row(0).values(), &[1.0, 1.0, 0.0, 1000.0, 2.0]);
    for missing in ",NA,N/A,nan,NaN,NULL,None,#N/A,<NA>,?,-".split(',') {
        let table = local(&format!("a,b\n1,{missing}\n")).unwrap();
        let error = table.check_readable().unwrap_err();
        assert_says(&error, &["line 2, column 2: the value is missing"], &[]);
    }
}

#[test]
fn errors_name_the_place_but_not_the_value() {
    for (text, place) in [
        ("a,b\n1,secret\n", "line 2, column 2: not a number"),
        (
            "1,2\n3\n",
            "line 2 has 1 field and not 2; if something else separates the columns, name it with `delimiter`",
        ),
        ("1,2\n3,\n", "line 2, column 2: the value is missing"),
        ("1,x\n", "line 1, column 2"),
        (
            "a,b\n1,\"2,500\"\n",
            "line 2, column 2: a number spelled otherwise",
        ),
        ("a,b\n\"1,secret\n1,2\n1,2\n", "quoted cell"),
        ("a,b\n1,2,3\n1,2,3\n1,2,3\n", "decimal commas"),
        ("a,b\n1,2,3\n1,2,3\n1,2,3\n", "row names"),
        ("a;b\n1,2\n1,2\n1,2\n", "separated by ';'"),
        ("a,b\n", "no rows"),
        ("", "no rows"),
    ] {
        let strict = local(text).and_then(|table| {
            table.check_readable()?;
            Ok(table)
        });
        let error = strict.unwrap_err().to_string();
        assert!(error.contains(place), "{text:?}: {error}");
        assert!(!error.contains("secret"));
    }
}

/// A first line of text may be a participant's row, even above numbers: it is shown only if a flag, the study or the
/// estimate confirms that it is a header.
#[test]
fn a_first_line_that_is_only_taken_for_names_is_not_shown() {
    for text in [
        "secret,hidden\n1,2\n3,x\n",
        "secret,hidden\n1,x\n2,y\n3,z\n",
        "secret\n1\n2\nx\n",
        "secret;hidden\n1,234;x\n1,5;2\n",
        "secret,hidden\n1,2,3\n1,2,3\n1,2,3\n",
        "secret,secret\n1,2\n3,4\n",
        "secret,5th\n1,2\n3,\n",
    ] {
        let guessed = local(text).and_then(|table| {
            let notes = table.notes().join(" ");
            table.check_readable().map_err(|error| error.context(notes))
        });
        let error = guessed.unwrap_err();
        assert_says(&error, &[], &["secret", "hidden"]);
    }
    let flagged = parse(b"a,b\n1,x\n", false, &with(Header::Yes), None).unwrap();
    let error = flagged.check_readable().unwrap_err().to_string();
    assert!(error.contains("column 2 (b)"), "{error}");
}

/// Whether a row is sent must not depend on its own data, nor on another row's.
#[test]
fn reading_does_not_depend_on_the_data() {
    let named = study(Some(&["a", "b"]), 2);
    let plain = study(None, 2);
    for row in [
        "1,2",
        "trace,below",
        "<0.5,>3",
        ",",
        "NA,n/a",
        "0,1",
        "a,b",
        "1,5,2,5",
        "1;2",
        "\"1,2",
        "\"1",
        "1,\"x",
        "\"\"\",1",
        "x;y,\t",
        "\u{fffd},\r1",
    ] {
        for (before, after) in [("", ""), ("7,8\n", ""), ("", "\n7,8"), ("7,8\n", "\n7,8")] {
            let others = [before, after]
                .iter()
                .filter(|text| !text.is_empty())
                .count();
            let body = format!("{before}{row}{after}\n");
            for table in [
                report(&format!("a,b\n{body}"), Header::Auto, &named),
                report(&format!("b,a\n{body}"), Header::Yes, &named),
                report(&format!("x,y\n{body}"), Header::Yes, &plain),
                // Without a header at least half of the lines must have the study's number of fields.
                report(&format!("{body}3,4\n3,4\n"), Header::No, &plain),
                report(&format!("{body}3,4\n3,4\n"), Header::No, &named),
            ] {
                let table = table.unwrap();
                let last = table.row(table.len() - 1);
                let more = 2 * usize::from(last.values() == [3.0, 4.0]);
                assert_eq!(table.len(), 1 + others + more, "{body:?}");
                // The other rows are unchanged.
                let first = table.row(0);
                if !before.is_empty() {
                    assert_eq!(first.values().iter().sum::<f64>(), 15.0, "{body:?}");
                }
            }
            // Without a flag, the error does not depend on the line.
            let error = report(&body, Header::Auto, &plain).unwrap_err().to_string();
            assert!(error.contains("`header` yes or `header` no"), "{error}");
        }
    }
    // A cell in another encoding is a missing value; the file is not refused.
    let latin = b"1,2\n3,<5 \xb5g\n";
    let table = parse(latin, false, &with(Header::No), Some(&plain)).unwrap();
    assert_eq!((table.len(), table.check_readable().is_ok()), (2, false));
    // Names with which a server could probe the first row.
    for names in [["0", "1"], ["a", "<0.5"], ["NA", "b"]] {
        let line = format!("{}\n1,2\n", names.join(","));
        let expected = study(Some(&names), 2);
        assert!(report(&line, Header::Auto, &expected).is_err());
        assert_eq!(report(&line, Header::Yes, &expected).unwrap().len(), 1);
    }
}

/// A line of delimiters alone is a row, whatever the delimiter.
#[test]
fn a_line_of_delimiters_is_a_row() {
    let named = study(Some(&["a", "b"]), 2);
    let tabs = |text: &str, header| {
        parse(text.as_bytes(), true, &with(header), Some(&named))
            .unwrap()
            .len()
    };
    assert_eq!(tabs("a\tb\n\t\n", Header::Auto), 1);
    assert_eq!(tabs("a\tb\n1\t2\n\t\n3\t4\n", Header::Auto), 3);
    assert_eq!(tabs("\t\n3\t4\n", Header::No), 2);
    // So is a blank one: one line is one participant.
    assert_eq!(tabs("a\tb\n1\t2\n\n", Header::Auto), 2);
    // Where nothing is sent neither is a row, whatever the quotes, nor is it the header.
    for (text, rows) in [
        ("a,b\n1,2\n,\n3,4\n", 2),
        ("a;b;c\n1;2;3\n;;\n ; ;\n", 1),
        ("a,b\n\"\",\"\"\n1,2\n,,,,\n", 1),
        (",,\na,b,c\n1,2,3\n", 1),
    ] {
        let table = local(text).unwrap();
        assert_eq!(table.len(), rows, "{text:?}");
        table.check_readable().unwrap();
    }
    let table = report("a,b\n1,2\n,\n\"\",\"\"\n", Header::Auto, &named).unwrap();
    assert!(table.notes().join(" ").contains("2 blank lines count"));
}

/// If a flag names the columns, another must say what line 1 is: it may be a participant with the values 0 and 1.
#[test]
fn names_given_by_flags_do_not_make_line_1_a_header() {
    let features = ["a", "b"].map(|name| Feature::new(name, 0.0, 1.0));
    let named = study(Some(&["a", "b"]), 2);
    let settings = |header| Settings {
        header,
        features: Some(features.to_vec()),
        ..Settings::default()
    };
    let read = |header| parse(b"0,1\n5,6\n", false, &settings(header), Some(&named));
    let error = read(Header::Auto).unwrap_err().to_string();
    assert!(error.contains("`header` yes or `header` no"), "{error}");
    assert_eq!(read(Header::Yes).unwrap().len(), 1);
}

#[test]
fn guesses_are_noted() {
    for (text, rows, words) in [
        ("450,451\n1,2\n", 2, "`header` yes"),
        ("7,451\n1,2\n", 2, "`header` yes"),
        ("0,1\n1,0\n", 1, "`header` no"),
    ] {
        let table = local(text).unwrap();
        assert_eq!(table.len(), rows);
        let notes = table.notes().join(" ");
        assert!(notes.contains(words), "{notes}");
        assert!(table.check_header_is_known().is_err());
    }
    assert!(local("a,b\n1,2\n").unwrap().check_header_is_known().is_ok());
    // A name among numbers, with its column left out.
    let settings = without(&["1"]);
    let table = parse(b"sample,450,451\ns1,1,2\ns2,3,4\n", false, &settings, None).unwrap();
    assert_eq!(table.len(), 3);
    assert!(table.check_header_is_known().is_err());
    assert!(table.notes().join(" ").contains("`header` yes"));
    let with_flag = parse(b"450,451\n1,2\n", false, &with(Header::Yes), None).unwrap();
    assert!(with_flag.check_header_is_known().is_ok());
}

/// Even if most rows belong to one person, their values must not influence the result.
#[test]
fn rows_of_one_person_do_not_decide() {
    let settings = Settings {
        label: Some(crate::Label {
            flag: "`person`",
            column: "who".to_owned(),
        }),
        ..with(Header::Auto)
    };
    for persons in [true, false] {
        let named = ExpectedColumns {
            persons,
            ..study(Some(&["a", "b"]), 2)
        };
        for row in ["z,foo,1", "z,\"1,234\",1", "z,5 %,1", "z,2.345,\"1,5\""] {
            let text = format!("who,a,b\np,1,2\nq,2,3\n{}", format!("{row}\n").repeat(30));
            let table = parse(text.as_bytes(), false, &settings, Some(&named));
            assert_eq!(table.is_ok(), persons, "{row}");
        }
        // The person of a broken line is unknown; without persons the line is the zero row.
        for (line, words) in [
            ("z,1", "line 4 has 2 fields and not 3"),
            ("z,1,2,3", "line 4 has 4 fields and not 3"),
            ("z;1;2", "line 4 has 1 field and not 3"),
            ("z;1;2", "name it with `delimiter`"),
            ("\"z,1,2", "line 4 has a quoted cell"),
            ("z,1,\"2", "line 4 has a quoted cell"),
            ("z,1,2\"", ""),
            ("", ""),
            (",,", ""),
        ] {
            let text = format!("who,a,b\np,1,2\nq,2,3\n{line}\nr,4,5\n");
            let table = parse(text.as_bytes(), false, &settings, Some(&named));
            let message = table.as_ref().err().map(ToString::to_string);
            match persons && !words.is_empty() {
                true => assert!(message.unwrap().contains(words), "{line}"),
                // A blank line belongs to nobody.
                false => {
                    let rows = 4 - usize::from(persons && !line.contains('z'));
                    assert_eq!(table.unwrap().len(), rows, "{line}");
                }
            }
        }
    }
}

/// A column is refused if it has at least 20 nonempty cells and more than half of them are unreadable.
#[test]
fn most_of_20_cells_refuse_a_column() {
    let named = study(Some(&["a", "sex=f", "sex=m"]), 3);
    let other = "1,f\n";
    for (rows, refused) in [
        ("x,f\n".repeat(19), false),
        ("x,f\n".repeat(20), true),
        ("x,f\n".repeat(19) + "NA,f\n", false),
        ("x,f\n".repeat(10) + &other.repeat(10), false),
        ("x,f\n".repeat(11) + &other.repeat(10), true),
        (
            "x,f\n".repeat(11) + &",f\n".repeat(30) + &other.repeat(10),
            true,
        ),
        ("1,w\n".repeat(19), false),
        ("1,w\n".repeat(11) + &other.repeat(10), true),
        (
            "1,w\n".repeat(10) + &other.repeat(10) + &"1,\n".repeat(9),
            false,
        ),
        ("1,NA\n".repeat(60), false),
    ] {
        let text = format!("a,sex\n{rows}");
        let table = report(&text, Header::Auto, &named);
        assert_eq!(table.is_err(), refused, "{rows}");
    }
}

/// Without a header, most lines decide on the form.
#[test]
fn one_line_does_not_decide_the_number_of_columns() {
    let unnamed = study(None, 2);
    let settings = Settings {
        drop: Some(vec!["1".to_owned()]),
        ..with(Header::No)
    };
    for (usual, odd) in [
        ("7,1.5,", "8,1,2"),
        ("7,1.5,2.5,", "8,1,2,4"),
        ("7,1.5,2.5,", "8,1"),
    ] {
        let lines = format!("{usual}\n").repeat(7);
        let read = |text: &str| parse(text.as_bytes(), false, &settings, Some(&unnamed)).is_ok();
        assert_eq!(
            read(&lines),
            read(&format!("{lines}{odd}\n")),
            "{usual} {odd}"
        );
    }
    // A column that is not a feature is not counted.
    let labelled = Settings {
        label: Some(crate::Label {
            flag: "`person`",
            column: "3".to_owned(),
        }),
        ..with(Header::No)
    };
    let table = parse(b"1,2,x\n3,4,y\n", false, &labelled, Some(&unnamed)).unwrap();
    assert_eq!((table.dimension(), table.labels().len()), (2, 2));
    for odd in ["1.5", "9,2", "1,5;2"] {
        let text = format!("{}{odd}\n", "1.5;2\n".repeat(5));
        let table = report(&text, Header::No, &unnamed).unwrap();
        assert_eq!(table.row(0).values(), [1.5, 2.0]);
    }
}

/// A cell of one participant exhausts neither the stack nor the time for the others.
#[test]
fn long_cells_are_read_in_linear_time() {
    for text in [
        format!("a,b\n1,5{}\n", "%".repeat(100_000)),
        format!("a,b\n1,{}\"2\"\n", " ".repeat(1_000_000)),
        format!("a,b\n1,4{}\n", "D".repeat(1_000_000)),
        format!("a,b\n1,0.1{}\n", " 234".repeat(300_000)),
        format!("a,b\n1,{}\n", "-$(".repeat(300_000)),
    ] {
        assert_eq!(local(&text).unwrap().len(), 1);
    }
}

#[test]
fn lines_that_programs_add_are_skipped() {
    // Excel's line that names the delimiter.
    let table = local("sep=;\na;b\n1.5;2\n").unwrap();
    assert_eq!(table.names().unwrap(), ["a", "b"]);
    assert_eq!(table.row(0).values(), [1.5, 2.0]);
    assert_eq!(local("SEP=|\r\na|b\r\n1|2\r\n").unwrap().dimension(), 2);
    // Lines that end in CR alone would all be line 1, whose cells are shown.
    let named = study(Some(&["a", "b", "c"]), 3);
    for text in ["a,b,c\r17.25,99.5,3\r", "a,b,c\r17.25,99.5,3"] {
        let error = report(text, Header::Auto, &named).unwrap_err();
        assert_says(&error, &["carriage returns"], &["17.25"]);
    }
    assert_eq!(local("a,b\r\n1,2\r\n").unwrap().len(), 1);
}

#[test]
fn a_gene_is_no_other_format() {
    let table = local("PAR1,b\n1,2\n3,PAR1").unwrap();
    assert_eq!(table.names().unwrap(), ["PAR1", "b"]);
}

#[test]
fn overlong_lines_are_refused() {
    let commas = ",".repeat(MAX_LINE_BYTES + 1);
    assert!(local(&commas).is_err());
    let long = "7,".repeat(MAX_LINE_BYTES / 2 + 1);
    let below = local(&format!("a,b\n1,2\n3,4\n{long}\n")).unwrap();
    let error = below.check_readable().unwrap_err();
    assert_says(&error, &["line 4 is longer than 16 MiB"], &["fields"]);
    let all = format!("a,b\n{long}\n{long}\n{long}\n");
    let error = local(&all).map(drop).unwrap_err();
    assert_says(&error, &["line 2 is longer than 16 MiB"], &["18446"]);
    let persons = ExpectedColumns {
        persons: true,
        ..study(Some(&["a", "b"]), 2)
    };
    let text = format!("a,b\n1,2\n{long}\n");
    let error = report(&text, Header::Auto, &persons).map(drop).unwrap_err();
    assert_says(&error, &["line 3 is longer than 16 MiB"], &["18446"]);
    let wide = "7,".repeat(crate::table::MAX_COLUMNS + 1);
    let error = local(&format!("{wide}\n{wide}\n")).unwrap_err().to_string();
    assert!(error.contains("columns; at most"), "{error}");
    let mut splitter = Splitter::new(b',');
    for _ in 0..1_000 {
        assert_eq!(splitter.split(b"1,2"), 2);
    }
    assert!(splitter.text.len() < 10);
}

#[test]
fn a_wrong_form_is_refused_before_values_are_read() {
    let named = study(Some(&["a", "b"]), 2);
    let text = "a,b\n".to_owned() + &"1,x\n2,y\n3,<0.5\n".repeat(7);
    let commas = "a,b\n".to_owned() + &"1,\"2,500\"\n2,\"1,500\"\n3,2\n".repeat(7);
    for (text, header, words) in [
        ("1,2,3\n", Header::No, "has 3 columns"),
        ("1,2\n", Header::Auto, "names none of the study's columns"),
        ("a,c\n1,2\n", Header::Auto, "lacks \"b\""),
        ("a,b\n1,2,3\n4,5,6\n7,8,9\n", Header::Auto, "most lines"),
        (&text, Header::Auto, "column 2 (b): most of its cells"),
        (&commas, Header::Auto, "`decimal` ,"),
    ] {
        let error = report(text, header, &named).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

/// Numbers are those of Rust, also with the minus sign U+2212, or with the stated decimal mark.
#[test]
fn numbers_are_what_rust_reads() {
    let read = |cell: &str, mark: Option<DecimalMark>| {
        let settings = Settings {
            decimal: mark,
            ..with(Header::Yes)
        };
        let table = parse(
            format!("a;b\n1;{cell}\n").as_bytes(),
            false,
            &settings,
            None,
        );
        table.unwrap().row(0).values()[1]
    };
    let (point, comma) = (Some(DecimalMark::Point), Some(DecimalMark::Comma));
    for (cell, marks, value) in [
        ("\u{2212}3", &[None, point, comma][..], -3.0),
        ("-2e3", &[None, point, comma], -2000.0),
        ("1e\u{2212}3", &[None, point, comma], 1e-3),
        ("+5", &[None, point, comma], 5.0),
        ("07", &[None, point, comma], 7.0),
        ("1.5", &[None, point], 1.5),
        (".5", &[None, point], 0.5),
        ("1,234.5", &[point], 1234.5),
        ("1,234,567", &[point], 1_234_567.0),
        ("1,5", &[comma], 1.5),
        ("-1.234,5", &[comma], -1234.5),
        ("1.147.600", &[comma], 1_147_600.0),
        ("1,5e3", &[comma], 1500.0),
        ("TRUE", &[None, point, comma], 1.0),
        ("false", &[None, point, comma], 0.0),
        // Thousands or decimals, by the stated mark.
        ("2.870", &[None, point], 2.87),
        ("2.870", &[comma], 2870.0),
        ("2,870", &[comma], 2.87),
        ("2,870", &[point], 2870.0),
    ] {
        for mark in marks {
            assert_eq!(read(cell, *mark), value, "{cell:?} {mark:?}");
        }
    }
    for cell in [
        "1 234",
        "1'234",
        "1_234",
        "4.2-",
        "(4.2)",
        "$5",
        "5 %",
        "<0.5",
        "5 kg",
        "4D2",
        "1e999",
        "inf",
        "\u{2013}5",
        "=\"5\"",
        "1,23,456",
        "0,125,000.5",
        "1.5.2",
        "1.234,5.6",
        "٣",
        "tRUE",
        "--5",
    ] {
        for mark in [None, point] {
            assert!(read(cell, mark).is_nan(), "{cell:?} {mark:?}");
        }
    }
    // Nothing is guessed, and the message gives the way out.
    let error = local("a;b\n1,5;2\n3;4\n").unwrap().check_readable();
    let words = [
        "line 2, column 1: a number spelled otherwise",
        "`decimal` ,",
    ];
    assert_says(&error.unwrap_err(), &words, &["1,5"]);
}

/// Names that are also words for missing values or Booleans: a header if there are other names, too; otherwise a flag
/// must decide.
#[test]
fn names_that_look_like_missing_values_are_seen() {
    for header in ["Na,Mg,Al", "RI,Na,inf", "none,a,True"] {
        let table = local(&format!("{header}\n1,2,3\n4,5,6\n")).unwrap();
        assert_eq!(table.names().unwrap().join(","), header);
        assert!(table.check_header_is_known().is_ok());
    }
    for header in ["Na,None", "inf,Infinity", "NA,NA"] {
        let table = local(&format!("{header}\n1,2\n4,5\n")).unwrap();
        assert!(table.check_header_is_known().is_err());
        let error = table.check_readable().unwrap_err().to_string();
        assert!(error.contains("give `header` yes"), "{header}: {error}");
    }
    // A row of missing values and numbers is no header.
    assert_eq!(local("NA,1\n2,3\n").unwrap().len(), 2);
    assert_eq!(local("True,False\nFalse,True\n").unwrap().len(), 2);
}

/// Delimiters at the ends of all or some lines, with or without a header.
#[test]
fn delimiters_at_line_ends_add_no_column() {
    let named = study(Some(&["a", "b"]), 2);
    for text in [
        "a,b,\n1,2,\n3,4,\n",
        "a,b\n1,2,\n3,4,\n",
        "a,b,\n1,2\n3,4,\n",
        "a;b;;\n1;2;;\n3;4;;\n",
        "a\tb\t\n1\t2\t\n3\t4\n",
        "1,2,\n3,4,\n",
    ] {
        let headerless = text.starts_with('1');
        let header = if headerless { Header::No } else { Header::Auto };
        for table in [local(text), report(text, header, &named)] {
            let table = table.unwrap();
            assert!(table.check_readable().is_ok(), "{text:?}");
            assert_eq!((table.len(), table.dimension()), (2, 2), "{text:?}");
            assert_eq!(table.row(1).values(), [3.0, 4.0], "{text:?}");
        }
    }
    // An empty cell in the last column is a missing value, and a value beyond the last name makes the row unusable.
    let table = local("a,b\n1,\n2,3\n").unwrap();
    assert!(table.row(0).values()[1].is_nan() && table.row(1).values() == [2.0, 3.0]);
    let more = report("a,b,\n1,2,9\n", Header::Auto, &named).unwrap();
    assert!(more.row(0).values()[0].is_nan());
}

#[test]
fn quotes_after_spaces_are_quotes() {
    let text = "\"a\", \"b, all\",  \"c \"\"d\"\"\"\n1, \"2\",   \"1234.5\"\n";
    let table = local(text).unwrap();
    assert_eq!(table.names().unwrap(), ["a", "b, all", "c \"d\""]);
    assert_eq!(table.row(0).values(), [1.0, 2.0, 1234.5]);
    let quoted = without_spaces_before_quotes(b"\"a \"\" \"\"b\", \"c\"", b',');
    assert_eq!(quoted, &b"\"a \"\" \"\"b\",\"c\""[..]);
}

/// One message names every column of text or dates, and every column with missing cells or single texts.
#[test]
fn all_that_must_be_mended_is_named_at_once() {
    let mut text = String::from("id,day,kind,age,note,size\n");
    for i in 0..30 {
        let age = if i % 10 == 3 { "" } else { "40" };
        let size = if i == 7 { "tall" } else { "1.5" };
        let (day, kind, word) = (i + 1, ["a", "b"][i % 2], i % 20);
        text += &format!("x{i}y,2024-01-{day:02},{kind},{age},word{word},{size}\n");
    }
    let error = parse(text.as_bytes(), false, &with(Header::Yes), None).unwrap_err();
    let words = [
        "column 1 (id), column 2 (day), column 3 (kind), column 5 (note): most of its cells are no numbers",
        "column 4 (age): 3 values are missing",
        "line 9, column 6 (size): not a number",
    ];
    assert_says(&error, &words, &["x3y", "tall"]);
    // For reports, no single value decides what the message says.
    let expected = study(Some(&["id", "day", "kind", "age", "note", "size"]), 6);
    let error = report(&text, Header::Auto, &expected).unwrap_err();
    assert_says(&error, &[words[0]], &["missing", "size"]);
}

#[test]
fn bytes_of_other_encodings_and_formats() {
    for (bytes, words) in [
        (&b"\x1f\x8b\x08"[..], "gzip"),
        (b"PK\x03\x04a", "Excel"),
        (
            include_bytes!("../../../tests/parquet/pyarrow.parquet"),
            "`format` parquet",
        ),
        (b"a\0,\0b\0\n\0", "UTF-16"),
        (b"a b\n1 2\n3 4\n5 6\n", "awk"),
        (b"a b\n1,5 2,5\n3,5 4,5\n5,5 6\n", "awk"),
    ] {
        let named = study(Some(&["a", "b"]), 2);
        let error = parse(bytes, false, &with(Header::Auto), Some(&named)).unwrap_err();
        assert_says(&error, &[words], &[]);
    }
    let error = parse(
        b"a;b\n1;2\n",
        true,
        &with(Header::Yes),
        Some(&study(None, 2)),
    )
    .unwrap_err();
    assert_says(&error, &["`delimiter` ';'"], &[]);
}

/// Each cell or name is decoded separately, so that no byte affects others; one with an invalid byte is unreadable.
#[test]
fn each_cell_has_its_own_encoding() {
    let named = study(Some(&["größe", "état=œdème", "état=léger"]), 3);
    let header = b"gr\xf6\xdfe;\xc3\xa9tat\n";
    let lines: [(&[u8], [f64; 3]); 5] = [
        (b"1;\x9cd\xe8me\n", [1.0, 1.0, 0.0]),
        ("2;léger\n".as_bytes(), [2.0, 0.0, 1.0]),
        ("3;le\u{301}ger\n".as_bytes(), [3.0, 0.0, 1.0]),
        (b"\x81;l\xe9ger\n", [f64::NAN, 0.0, 1.0]),
        (b"5;l\x8dger\n", [5.0, f64::NAN, f64::NAN]),
    ];
    let text = [&header[..], &lines.map(|(line, _)| line).concat()[..]].concat();
    let table = parse(&text, false, &with(Header::Auto), Some(&named)).unwrap();
    for (index, (_, expected)) in lines.iter().enumerate() {
        let read = table.row(index);
        for (actual, expected) in read.values().iter().zip(expected) {
            assert!(
                actual == expected || actual.is_nan() && expected.is_nan(),
                "line {index}"
            );
        }
    }
    // The whole file in a stated encoding, or in UTF-16.
    let text = "größe;état\n1;œdème\n2;léger\n";
    let in_utf_16 = |bytes: fn(u16) -> [u8; 2]| {
        let marked = format!("\u{feff}{text}");
        marked.encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    let macintosh = b"gr\x9a\xa7e;\x8etat\n1;\xcfd\x8fme\n2;l\x8eger\n".to_vec();
    for (bytes, name) in [
        (in_utf_16(u16::to_le_bytes), None),
        (in_utf_16(u16::to_be_bytes), None),
        (macintosh.clone(), Some("macintosh")),
    ] {
        let settings = Settings {
            encoding: name.map(|name| encoding(name).unwrap()),
            ..with(Header::Auto)
        };
        let table = parse(&bytes, false, &settings, Some(&named)).unwrap();
        assert_eq!(table.row(0).values(), [1.0, 1.0, 0.0]);
        assert_eq!(table.row(1).values(), [2.0, 0.0, 1.0]);
    }
    assert!(parse(&macintosh, false, &with(Header::Auto), Some(&named)).is_err());
}

/// Lines above the names, and names of several lines: the message names the line, and the way out.
#[test]
fn lines_above_the_names_are_told() {
    let rows = "1,2,3\n4,5,6\n7,8,9\n";
    let named = study(Some(&["a", "b", "c"]), 3);
    for (above, words) in [
        (
            "# exported\n# north, device 7\na,b,c\n",
            "line 3 names the columns",
        ),
        ("#\n\na,b,c\n", "line 3 names the columns"),
        ("# a,b,c\n", "line 1 begins with #"),
        ("Survey of 2024\na,b,c\n", "line 2 names the columns"),
        ("Survey of 2024,,\n,,\na,b,c\n", "line 3 names the columns"),
        ("\"height\n(cm)\",b,c\n", "quoted name in line 1 continues"),
        ("a,\"b\n1\",c\n", "quoted name in line 1 continues"),
    ] {
        let text = format!("{above}{rows}");
        let error = local(&text).map(drop).unwrap_err();
        assert_says(&error, &[words], &["height", "exported", "Survey"]);
        assert_says(
            &report(&text, Header::Auto, &named).unwrap_err(),
            &[words],
            &["height"],
        );
    }
    // The same with semicolons, which the title does not contain.
    let error = local(&format!("Umfrage\na;b;c\n{}", rows.replace(',', ";"))).unwrap_err();
    assert_says(&error, &["line 2 names the columns"], &["Umfrage"]);
    let table = parse(b"#a,b\n1,2\n", false, &with(Header::Yes), None).unwrap();
    assert_eq!(table.names().unwrap(), ["#a", "b"]);
    let named = study(Some(&["#a", "b"]), 2);
    assert_eq!(
        report("#a,b\n1,2\n", Header::Auto, &named).unwrap().len(),
        1
    );
}

/// A cell that is a category of the study means nothing else, and a column without any category is refused with both
/// lists.
#[test]
fn categories_are_exact_text() {
    let names = [
        "c=NA",
        "c=1382016600011617669",
        "c=1382016600011617670",
        "c=True",
        "b",
    ];
    let named = study(Some(&names), 5);
    let text = "c,b\nNA,1\n1382016600011617670,2\nTrue,3\nTRUE,4\n1,5\nNULL,6\n,7\n";
    let table = report(text, Header::Auto, &named).unwrap();
    let row = |at: usize| table.row(at).values().to_vec();
    assert_eq!(row(0), [1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(row(1), [0.0, 0.0, 1.0, 0.0, 2.0]);
    assert_eq!(row(2), [0.0, 0.0, 0.0, 1.0, 3.0]);
    assert_eq!(
        (row(3), row(4)),
        (vec![0.0, 0.0, 0.0, 0.0, 4.0], vec![0.0, 0.0, 0.0, 0.0, 5.0])
    );
    for missing in [5, 6] {
        assert!(row(missing)[..4].iter().all(|value| value.is_nan()));
    }
    // Cells count once rather than once per category, under the column's name.
    let unreadable = table.unreadable(false).unwrap();
    let words = [
        "column 1 (c): 2 values are none of",
        "column 1 (c): 2 values are missing",
    ];
    assert_says(&unreadable, &words, &["TRUE", "NULL", "c=NA"]);
    let smoker = study(Some(&["smoker=no", "smoker=yes", "b"]), 3);
    let text = "smoker,b\n".to_owned() + &"Yes,1\nNo,2\n".repeat(15) + "only one,3\n";
    let error = report(&text, Header::Auto, &smoker).unwrap_err();
    assert_says(
        &error,
        &["(smoker)", "\"no\", \"yes\"", "\"No\", \"Yes\""],
        &["only one"],
    );
    // If nothing is sent, one cell suffices.
    let local = ExpectedColumns {
        reports: false,
        ..smoker
    };
    assert!(report(&text, Header::Auto, &local).is_err());
    for (cells, words) in [
        (
            "yes,1\nNo,2\nno,3\n",
            "; no two rows have the same instead;",
        ),
        ("no,1\nNo,2\nno,3\nno,4\nno,5\nNo,6\n", "; they are \"No\";"),
    ] {
        let error = report(&format!("smoker,b\n{cells}"), Header::Auto, &local).unwrap_err();
        let some = "column 1 (smoker): some of its cells are none of the categories";
        assert_says(&error, &[some, "\"no\", \"yes\"", words, "line 3"], &[]);
    }
    // Numbers separated by spaces are not columns if they are categories.
    for reports in [true, false] {
        let ages = ExpectedColumns {
            reports,
            ..study(Some(&["age=18 29", "age=30 44"]), 2)
        };
        let text = "age\n18 29\n30 44\n18 29\n30 44\n";
        let table = report(text, Header::Auto, &ages).unwrap();
        assert_eq!(table.row(1).values(), [0.0, 1.0]);
    }
}

/// In a preparation a text that is none of the categories is another one, however many rows have it.
#[test]
fn other_texts_are_another_category_of_a_preparation() {
    let names = ["town=Rome", "town=Milan", "smoker=yes|no"];
    let asked = ExpectedColumns {
        other_categories: true,
        ..study(Some(&names), 3)
    };
    let text = "town,smoker\n".to_owned() + &"Turin,yes\n".repeat(30) + "Rome,no\nNA,never\n";
    let table = report(&text, Header::Auto, &asked).unwrap();
    assert_eq!(table.row(0).values(), [0.0, 0.0, 1.0]);
    assert_eq!(table.row(30).values(), [1.0, 0.0, 0.0]);
    assert!(table.row(31).values()[..2].iter().all(|x| x.is_nan()));
    let unreadable = table.unreadable(true).unwrap();
    let words = ["column 2 (smoker): none of the categories"];
    assert_says(&unreadable, &words, &["town", "Turin", "never"]);
    let of_rows = ExpectedColumns {
        other_categories: false,
        ..asked
    };
    assert!(report(&text, Header::Auto, &of_rows).is_err());
}

/// One feature of two categories knows both: another text is neither, and not the one for which it is 0.
#[test]
fn a_feature_of_two_categories_has_both() {
    let named = study(Some(&["smoker=yes|no", "b"]), 2);
    let text = "b,smoker\n1,yes\n2,no\n3,never\n4,\n";
    let table = report(text, Header::Auto, &named).unwrap();
    let rows: Vec<Vec<f64>> = (0..3).map(|at| table.row(at).values().to_vec()).collect();
    assert_eq!(rows, [[1.0, 1.0], [0.0, 2.0], [0.0, 3.0]]);
    assert!(table.row(3).values()[0].is_nan());
    let words = [
        "line 4, column 2 (smoker): none of the categories",
        "line 5, column 2 (smoker): the value is missing",
    ];
    assert_says(&table.unreadable(false).unwrap(), &words, &["never"]);
    let local = ExpectedColumns {
        reports: false,
        ..named
    };
    let error = report(text, Header::Auto, &local).unwrap_err();
    assert_says(&error, &["which are \"no\", \"yes\"", "(smoker)"], &[]);
    // What public rows become is read back alike.
    let settings = Settings {
        one_hot: Some(strings(&["smoker"])),
        public_rows: true,
        ..Settings::default()
    };
    let public = text.replace("3,never\n", "");
    let table = parse(public.as_bytes(), false, &settings, None).unwrap();
    assert_eq!(table.names().unwrap(), ["b", "smoker=yes|no"]);
    assert_says(
        &table.notes().join("; "),
        &["1 for \"yes\", 0 for \"no\""],
        &[],
    );
}

/// Messages name the columns of public rows, whose first line may be shown and whose cells may be missing.
#[test]
fn columns_of_public_rows_have_their_names_in_messages() {
    let text = "age,colour\n,red\n".to_owned() + &"1,red\n2,green\n".repeat(20);
    for (public_rows, words, hidden) in [
        (true, "column 2 (colour): most of its cells", "missing"),
        (false, "column 2: most of its cells", "colour"),
    ] {
        let settings = Settings {
            public_rows,
            ..Settings::default()
        };
        let error = parse(text.as_bytes(), false, &settings, None).unwrap_err();
        assert_says(&error, &[words], &[hidden]);
    }
}

/// Public rows whose words for missing values may be values: they are counted, and can be kept.
#[test]
fn a_word_is_kept_as_a_category() {
    let text = "country,b\n".to_owned() + &"DE,1\nNA,2\nZA,3\nNA,4\n,5\n".repeat(8);
    let read = |one_hot: &[&str]| {
        let settings = Settings {
            one_hot: Some(strings(one_hot)),
            ..with(Header::Yes)
        };
        parse(text.as_bytes(), false, &settings, None)
    };
    let error = read(&["country"]).unwrap().check_readable().unwrap_err();
    let words = [
        "column 1 (country): 24 values are missing",
        "`one_hot` 'country=NA'",
    ];
    assert_says(&error, &words, &["48", "DE"]);
    for wanted in [&["country=NA"][..], &["country", "country=NA"]] {
        let table = read(wanted).unwrap();
        let names = ["country=DE", "country=NA", "country=ZA", "b"];
        assert_eq!(table.names().unwrap(), names);
        assert_eq!(table.row(1).values(), [0.0, 1.0, 0.0, 2.0]);
        assert!(table.row(4).values()[0].is_nan());
        let error = table.check_readable().unwrap_err();
        assert_says(
            &error,
            &["column 1 (country): 8 values are missing"],
            &["kept"],
        );
    }
    assert_says(&read(&["town"]).unwrap_err(), &["no column \"town\""], &[]);
    let broken = text.replace("ZA", "Z\u{7}A");
    let settings = Settings {
        one_hot: Some(strings(&["country"])),
        ..with(Header::Yes)
    };
    let error = parse(broken.as_bytes(), false, &settings, None).unwrap_err();
    assert_says(&error, &["\"country\"", "in row 3"], &[]);
}
