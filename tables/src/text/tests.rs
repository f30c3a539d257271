use eigenveil_shared::preprocess::Feature;

use super::*;
use crate::testing::{assert_says, study, with, without};

/// Reads like `project` and `central`, but without refusing unreadable values.
fn local(text: &str) -> Result<RowTable> {
    parse(text.as_bytes(), false, &with(Header::Auto), None)
}

/// With `decimal`.
fn said(text: &str, mark: DecimalMark) -> Result<RowTable> {
    let settings = Settings {
        decimal: Some(mark),
        ..with(Header::Auto)
    };
    parse(text.as_bytes(), false, &settings, None)
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
        "a;b\n1,5;2\n",
        "a\tb\n1,5\t2\n",
        "a|b\n1.5|2\n",
        "\"a\";\"b\"\n\"1,5\";2\n",
        "1,5;2\n1,5;2\n",
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
        ("1,2\n3\n", "line 2 has 1 fields"),
        ("1,2\n3,\n", "line 2, column 2: the value is missing"),
        ("1,x\n", "line 1, column 2"),
        ("a,b\n1,\"2,500\"\n", "line 2, column 2: a decimal comma"),
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
    assert!(parse(b"\xff\xfe1\0,\x002\0", false, &Settings::default(), None).is_err());
}

/// A first line of text may be a participant's row, even above numbers: it is shown only if a flag, the study or the
/// estimate confirms that it holds names.
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
            // Without a flag: the same error whatever the line contains.
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

#[test]
fn ambiguous_thousands_separators_are_noted() {
    let notes = |text: &str| local(text).unwrap().notes().join("; ");
    assert!(notes("a;b\n1,234;5\n12,500;6\n").contains("column 1: every comma"));
    for decimal in ["1,234;5\n1,5;6", "0,234;5\n3;6", "1;2\n3;4"] {
        let notes = notes(&format!("a;b\n{decimal}\n"));
        assert!(!notes.contains("every comma"), "{decimal:?}");
    }
}

/// Cells that people may mean otherwise are read, with a note.
#[test]
fn unusual_readings_are_noted() {
    let named = study(Some(&["a", "b"]), 2);
    for (cells, words) in [
        ("234;1\n12.345;2\n87.001;3", "every point is followed"),
        ("2;1\n2-;2\n3;3", "minus sign behind"),
        ("(1);1\n(2);2\n3;3", "brackets"),
        ("120 080;1\n5;2\n3;3", "spaces left out"),
        ("$5;1\n5;2\n3;3", "currencies"),
    ] {
        let text = format!("a;b\n{cells}\n");
        for table in [local(&text), report(&text, Header::Auto, &named)] {
            let notes = table.unwrap().notes().join("; ");
            assert!(
                notes.contains("column 1") && notes.contains(words),
                "{cells}: {notes}"
            );
            assert!(!notes.contains("column 2"), "{notes}");
        }
    }
    for cells in [
        "234.000;1\n12.345;2",
        "234;1\n12.345;2\n1.5;3",
        "0;1\n12.345;2",
    ] {
        assert!(
            local(&format!("a;b\n{cells}\n"))
                .unwrap()
                .notes()
                .is_empty(),
            "{cells}"
        );
    }
    let table = report("a,b\n\"1,234\",1\n5,2\n6,3\n", Header::Auto, &named).unwrap();
    assert!(table.notes().join(" ").contains("`decimal`"));
}

/// Even if most rows belong to one person, their values must not influence the result.
#[test]
fn rows_of_one_person_do_not_decide() {
    let named = study(Some(&["a", "b"]), 2);
    for label in ["--person", "--weight"] {
        let settings = Settings {
            label: Some(crate::Label {
                flag: label,
                column: "who".to_owned(),
            }),
            ..with(Header::Auto)
        };
        for row in ["z,foo,1", "z,\"1,234\",1", "z,5 %,1", "z,2.345,\"1,5\""] {
            let text = format!("who,a,b\np,1,2\nq,2,3\n{}", format!("{row}\n").repeat(9));
            let table = parse(text.as_bytes(), false, &settings, Some(&named));
            assert_eq!(table.is_ok(), label == "--person", "{row}");
        }
        // Whose a broken line is nobody can tell; without persons it is the zero row.
        for broken in ["z,1", "z,1,2,3"] {
            let text = format!("who,a,b\np,1,2\nq,2,3\n{broken}\nr,4,5\n");
            let table = parse(text.as_bytes(), false, &settings, Some(&named));
            let refused = table.err().map(|error| error.to_string());
            let line = refused.is_some_and(|refused| refused.contains("line 4 "));
            assert_eq!(line, label == "--person", "{broken}");
        }
    }
}

/// Without a header the form is that of most lines.
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
    for odd in ["1,5", "9;2", "1,5;2"] {
        let text = format!("{}{odd}\n", "1,5;2\n".repeat(5));
        let table = report(&text, Header::No, &unnamed).unwrap();
        assert_eq!(table.row(0).values(), [1.5, 2.0]);
    }
}

/// A cell of one participant takes neither the stack nor the time of the others.
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
    let table = local("sep=;\na;b\n1,5;2\n").unwrap();
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
fn overlong_lines_are_refused() {
    let commas = ",".repeat(MAX_LINE_BYTES + 1);
    assert!(local(&commas).is_err());
    let wide = "7,".repeat(crate::table::MAX_COLUMNS + 1);
    let error = local(&format!("{wide}\n{wide}\n")).unwrap_err().to_string();
    assert!(error.contains("columns; at most"), "{error}");
    let mut splitter = Splitter::new(b',');
    for _ in 0..1_000 {
        assert_eq!(splitter.split("1,2"), 2);
    }
    assert!(splitter.text.len() < 10);
}

#[test]
fn a_wrong_form_is_refused_before_values_are_read() {
    let named = study(Some(&["a", "b"]), 2);
    let text = "a,b\n1,x\n2,y\n3,<0.5\n";
    let commas = "a,b\n1,\"2,500\"\n2,\"1,500\"\n3,2\n";
    for (text, header, words) in [
        ("1,2,3\n", Header::No, "has 3 columns"),
        ("1,2\n", Header::Auto, "names none of the study's columns"),
        ("a,c\n1,2\n", Header::Auto, "lacks \"b\""),
        ("a,b\n1,2,3\n4,5,6\n7,8,9\n", Header::Auto, "most lines"),
        (text, Header::Auto, "column 2 (b): text in most rows"),
        (commas, Header::Auto, "decimal comma"),
    ] {
        let error = report(text, header, &named).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

/// Numbers as typesetting, spreadsheets and locales write them; what could mean two things is refused with its column.
#[test]
fn numbers_are_read_as_the_world_writes_them() {
    for (cell, value) in [
        ("\u{2212}3", -3.0),
        ("\u{2013}0.5", -0.5),
        ("\u{ff0d}7", -7.0),
        ("1\u{a0}234", 1234.0),
        ("1\u{202f}234\u{202f}567.25", 1_234_567.25),
        ("12\u{2009}345", 12_345.0),
        ("1'234.5", 1234.5),
        ("\u{2212}1\u{2019}234", -1234.0),
        ("\"1,234.5\"", 1234.5),
        ("\"1.234,5\"", 1234.5),
        ("\"0,125\"", 0.125),
        ("\"2,5\"", 2.5),
        ("1e\u{2212}3", 1e-3),
        ("\u{a0}4\u{a0}", 4.0),
        ("\u{2014}4.2", -4.2),
        ("- 4.2", -4.2),
        ("4.2-", -4.2),
        ("(4.2)", -4.2),
        ("\"(1,234.5)\"", -1234.5),
        ("$4869", 4869.0),
        ("\u{20ac} -4869.5", -4869.5),
        ("-$5", -5.0),
        ("7.5 \u{20ac}", 7.5),
        ("4 869.5", 4869.5),
        ("\"-4 869,5\"", -4869.5),
        ("4_869", 4869.0),
        ("\"1,147,600\"", 1_147_600.0),
        ("1.147.600", 1_147_600.0),
        ("\"12,34,567.5\"", 1_234_567.5),
        ("4.8D+03", 4800.0),
        ("=\"-4869\"", -4869.0),
        ("\"$(1,234.50)\"", -1234.5),
        ("\"($1,234.50)\"", -1234.5),
        ("$ -", 0.0),
        ("\u{200e}-5", -5.0),
        ("\u{200f}\u{2212}5", -5.0),
        ("\u{2066}-5\u{2069}", -5.0),
        ("'\u{2212}5", -5.0),
        ("\"5,-\"", 5.0),
        ("\"-12,\u{2013}\"", -12.0),
        ("1'234.--", 1234.0),
        ("\"1.234,-\"", 1234.0),
        ("\"1,234.-\"", 1234.0),
        ("+$5.20", 5.2),
        ("+ 5", 5.0),
        ("+1 234", 1234.0),
        ("0.123 456", 0.123_456),
        ("'-5", -5.0),
        ("\u{20b9}5", 5.0),
    ] {
        let table = local(&format!("a,b\n1,{cell}\n")).unwrap();
        assert_eq!(table.row(0).values(), [1.0, value], "{cell:?}");
    }
    for cell in [
        "1\u{a0}23",
        "12'34",
        "'123",
        "1'2345",
        "5 6",
        "--5",
        "(-5)",
        "-5-",
        "5-7",
        "1.23.456",
        "$",
        "()",
        "4D2",
        "\"0,123,456\"",
        "012.345.678",
        "030 525 123",
        "\u{25b2}5",
        "+-5",
        "-+5",
        "5%%",
    ] {
        let table = local(&format!("a,b\n1,{cell}\n")).unwrap();
        assert!(table.row(0).values()[1].is_nan(), "{cell:?}");
    }
    for percent in ["(5%)", "5%-", "% 5", "-5 %"] {
        let error = local(&format!("a,b\n1,{percent}\n2,{percent}\n3,4\n")).unwrap_err();
        assert_says(&error, &["percent"], &[]);
    }
    // A single cell decides where nothing is sent, and all such columns are named at once.
    let mixed = "a,b,c\n1,\"1,500\",3\n2,7,4 %\n3,8,5\n";
    let error = local(mixed).unwrap_err().to_string();
    assert_says(&error, &["column 2", "column 3"], &[]);
    assert_says(&error, &["percent"], &["500"]);
}

/// Names that are also words for missing values or truth values: a header if other names stand beside them; alone, a
/// flag must decide.
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
        let error = table.check_readable().and_then(|()| table.check_finite());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("give `header` yes"), "{header}: {error}");
    }
    // A row of missing values and numbers is no header.
    assert_eq!(local("NA,1\n2,3\n").unwrap().len(), 2);
    assert_eq!(local("True,False\nFalse,True\n").unwrap().len(), 2);
}

/// Delimiters at the ends of lines, in all lines or some, with a header or without.
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
    // An empty cell in the last column is a missing value, and a value beyond the last name is none of its columns'.
    let table = local("a,b\n1,\n2,3\n").unwrap();
    assert!(table.row(0).values()[1].is_nan() && table.row(1).values() == [2.0, 3.0]);
    let more = report("a,b,\n1,2,9\n", Header::Auto, &named).unwrap();
    assert!(more.row(0).values()[0].is_nan());
}

#[test]
fn quotes_after_spaces_are_quotes() {
    let text = "\"a\", \"b, all\",  \"c \"\"d\"\"\"\n1, \"2\",   \"1,234.5\"\n";
    let table = local(text).unwrap();
    assert_eq!(table.names().unwrap(), ["a", "b, all", "c \"d\""]);
    assert_eq!(table.row(0).values(), [1.0, 2.0, 1234.5]);
    let quoted = without_spaces_before_quotes("\"a \"\" \"\"b\", \"c\"", b',');
    assert_eq!(quoted, "\"a \"\" \"\"b\",\"c\"");
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
        "column 1 (id): text in most rows that differs in all",
        "column 2 (day): dates",
        "column 3 (kind): text in most rows, few values",
        "column 5 (note): text in most rows, not numbers",
        "column 4 (age): 3 values are missing",
        "line 9, column 6 (size): not a number",
    ];
    assert_says(&error, &words, &["x3y", "tall"]);
    // For reports, no value decides what the message says about a column.
    let expected = study(Some(&["id", "day", "kind", "age", "note", "size"]), 6);
    let error = report(&text, Header::Auto, &expected).unwrap_err();
    assert_says(&error, &[], &["dates", "missing"]);
}

/// A column with both notations: 1.234 may be a thousand, and some rows would be read wrong by their values.
#[test]
fn columns_with_both_notations_are_refused() {
    for text in ["a;b\n1,5;1\n1.234;2\n2,5;3\n", "a;b\n1,234;1\n1.5;2\n2;3\n"] {
        let error = local(text).unwrap_err();
        assert_says(&error, &["column 1", "decimal comma beside"], &[]);
        // For reports a row cannot decide for the others.
        let table = report(text, Header::Auto, &study(Some(&["a", "b"]), 2)).unwrap();
        assert!(table.notes().join(" ").contains("decimal comma beside"));
    }
    assert!(local("a;b\n1.234,5;1\n1,5;2\n2;3\n").is_ok());
    let millions = "a;b\n1.147.600;1\n2.870;2\n";
    assert_says(
        &local(millions).unwrap_err(),
        &["decimal comma beside"],
        &[],
    );
}

/// A column whose points or commas could be decimal marks or thousands separators, in a file whose other columns show
/// the decimal mark.
#[test]
fn the_decimal_mark_is_that_of_the_file() {
    let doubtful = |text: &str, mark: DecimalMark, values: [f64; 2]| {
        let error = local(text).unwrap_err();
        assert_says(&error, &["column 1", "`decimal`"], &["column 2", "2.870"]);
        let named = study(Some(&["a", "b"]), 2);
        // Most rows reveal the mark; otherwise everyone would be charged for values 1,000 times too small.
        let error = report(text, Header::Auto, &named).unwrap_err();
        assert_says(&error, &["`decimal`"], &["2.870"]);
        let table = said(text, mark).unwrap();
        assert_eq!(table.row(0).values(), values);
        assert!(table.notes().is_empty(), "{:?}", table.notes());
    };
    doubtful(
        "a;b\n2.870;1,5\n419;2,5\n3.114;4\n",
        DecimalMark::Comma,
        [2870.0, 1.5],
    );
    doubtful(
        "a\tb\n2,870\t1.5\n419\t2.5\n3,114\t4\n",
        DecimalMark::Point,
        [2870.0, 1.5],
    );
    doubtful(
        "a,b\n2.870,\"1,5\"\n419,\"2,5\"\n3.114,4\n",
        DecimalMark::Comma,
        [2870.0, 1.5],
    );
    doubtful(
        "a;b\n2.870;1,5\n1.147.600;2,5\n3.114;4\n",
        DecimalMark::Comma,
        [2870.0, 1.5],
    );
    // Between commas too, and what the mark does not allow is no number.
    let table = said("a,b\n\"2,870\",2\n1.5,\"1,5\"\n", DecimalMark::Point).unwrap();
    assert_eq!(table.row(0).values(), [2870.0, 2.0]);
    assert!(table.row(1).values()[1].is_nan());
    let table = said("a;b\n2870;1e3\n1.5;-1.234,5\n", DecimalMark::Comma).unwrap();
    assert_eq!(table.row(0).values(), [2870.0, 1000.0]);
    assert!(table.row(1).values()[0].is_nan() && table.row(1).values()[1] == -1234.5);
    // Both columns show what they are, and so does one whose points cannot be between thousands.
    assert!(local("a;b\n2.5;1,5\n2.870;2,5\n").is_ok());
    assert!(local("a;b\n0.870;1,5\n0.125;2,5\n").is_ok());
    // What the mark cannot be is no number either.
    let table = said("a;b\n0.541;1\n0,5;2\n", DecimalMark::Comma).unwrap();
    assert!(table.row(0).values()[0].is_nan() && table.row(1).values()[0] == 0.5);
    // Most numbers have the other mark: nobody is charged for a zero row.
    let named = study(Some(&["a", "b"]), 2);
    let settings = Settings {
        decimal: Some(DecimalMark::Comma),
        ..with(Header::Auto)
    };
    let wrong = parse(
        b"a;b\n1.25;3\n2.25;4\n3;5\n",
        false,
        &settings,
        Some(&named),
    );
    assert_says(&wrong.unwrap_err(), &["column 1", "than `decimal`"], &[]);
    // For reports, one row does not decide for the others.
    for odd in ["7;1,5", "7;0,5", "7;1.147.600", "7;10.100.100.100", "2,5;7"] {
        let text = format!("a;b\n{}{odd}\n", "1.234;5.5\n3.456;7\n".repeat(5));
        let table = report(&text, Header::Auto, &named).unwrap();
        assert!(table.notes().join(" ").contains("`decimal`"), "{odd}");
    }
    let text = "a;b\n2.870;1,5\n419;2\n311;4\n";
    let table = report(text, Header::Auto, &study(Some(&["a", "b"]), 2)).unwrap();
    assert!(table.notes().join(" ").contains("`decimal`"));
}

#[test]
fn bytes_of_other_encodings_and_formats() {
    for (bytes, words) in [
        (&b"\x1f\x8b\x08"[..], "gzip"),
        (b"PK\x03\x04a", "Excel"),
        (b"PAR1aPAR1", "`format` parquet"),
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
    let euro = parse(b"a;b\n\x97 5 \x80;2\n", false, &with(Header::Auto), None).unwrap();
    assert_eq!(euro.row(0).values(), [-5.0, 2.0]);
    // Windows-1252, as Excel writes it in France: the no-break space is one byte, and so is ö in a name.
    let bytes = b"gr\xf6\xdfe;b\n1\xa0234,5;2\n";
    let table = parse(bytes, false, &with(Header::Auto), None).unwrap();
    assert_eq!(table.names().unwrap()[0], "größe");
    assert_eq!(table.row(0).values()[0], 1234.5);
}
