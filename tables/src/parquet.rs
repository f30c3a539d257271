//! Parquet tables: columns of numbers, by name; columns of text are read as those of a text table.
//!
//! Types and names come from the file's footer; only the selected columns are read. A null is a missing value.

use bytes::Bytes;
use parquet::{
    basic::{Compression, LogicalType, Type},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    errors::ParquetError,
    file::{
        metadata::{KeyValue, RowGroupMetaData},
        reader::{FileReader, SerializedFileReader},
    },
    schema::types::ColumnDescriptor,
};

use serde::Deserialize;

use crate::{
    cells::DecimalMark,
    columns::{self, ExpectedColumns, FileColumns},
    error::{Error, Result},
    problems::UnreadableReason,
    settings::Settings,
    table::{RowTable, check_columns},
    text_columns::{DATES, Reading, RefusedColumns, TextCells, encode},
};

/// Largest number of values read (1 GiB of memory, and as much again temporarily): a small file can expand to very many
/// values.
const MAX_VALUES: usize = 1 << 27;
const BATCH_ROWS: usize = 1 << 16;

pub(crate) fn parse(
    bytes: &[u8],
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let bytes = Bytes::copy_from_slice(bytes);
    let file = SerializedFileReader::new(bytes).map_err(parquet_error)?;
    let metadata = file.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let names = schema.columns().iter();
    let found = FileColumns {
        count: schema.num_columns(),
        names: Some(names.map(|column| column.path().string()).collect()),
        shown: true,
    };
    check_columns(found.count)?;
    let mut mapping = columns::map_columns(found, how, expected)?;
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or_default();
    let of_groups = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    let of_groups = of_groups.fold(0_i64, i64::saturating_add);
    if usize::try_from(of_groups) != Ok(rows) {
        return Err(Error::new(format!(
            "its footer says {rows} rows but its row groups have {of_groups}; write it again"
        )));
    }
    let durations = durations(metadata.file_metadata().key_value_metadata());
    let kinds = schema.columns().iter();
    let kinds = kinds.map(|column| kind_of(column, &durations)).collect();
    let mut columns = Columns {
        file: &file,
        kinds,
        rows,
    };
    if let Some(wanted) = &how.one_hot {
        encode(wanted, &mut columns, &mut mapping)?;
    }
    let wide = mapping.take.len();
    if rows.saturating_mul(wide) > MAX_VALUES {
        return Err(Error::new(format!(
            "{rows} rows of {wide} values need too much memory; give fewer rows or columns"
        )));
    }
    let mut refused = RefusedColumns::default();
    for why in [DATES, LISTS, DURATIONS, TIMES, DECIMALS, BYTES, OTHERS] {
        let of_kind = |at: &usize| columns.kinds[mapping.take[*at]] == Kind::Refused(why);
        let matching: Vec<usize> = (0..wide).filter(of_kind).collect();
        refused.add(&matching, why, &mapping);
    }
    let mut reading = Reading::new(how, expected, DecimalMark::Unsure, wide);
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); wide];
    for (named, into) in values.iter_mut().enumerate() {
        let at = mapping.take[named];
        match (columns.kinds[at], mapping.category(named)) {
            (Kind::Refused(_), _) => continue,
            (Kind::Numbers { unsigned }, None) => columns.each_chunk(at, |chunk| {
                chunk.each_number(unsigned, |number| {
                    let number = number.ok_or(UnreadableReason::Missing);
                    into.push(reading.number(into.len() + 1, named, number, &mapping));
                })
            })?,
            _ => columns.each_cell(&[at], &mut |_, cell| {
                into.push(reading.cell(into.len() + 1, named, cell, &mapping));
            })?,
        }
        columns.check_rows(into.len())?;
    }
    let mut labels = Vec::new();
    if let Some(label) = mapping.label {
        columns.each_cell(&[label], &mut |_, cell| labels.push(cell.to_owned()))?;
        columns.check_rows(labels.len())?;
    }
    reading.check(rows, &mut mapping, refused, &mut columns)?;
    let row = |row: usize| values.iter().map(move |column| column[row]);
    let values = (0..rows).flat_map(row).collect();
    RowTable::of(mapping, values, reading.problems, labels)
}

/// The columns of a file, read on demand.
struct Columns<'a> {
    file: &'a SerializedFileReader<Bytes>,
    kinds: Vec<Kind>,
    rows: usize,
}

impl Columns<'_> {
    /// Calls `each` with the column's part of each row group.
    fn each_chunk(
        &self,
        column: usize,
        mut each: impl FnMut(Chunk) -> std::result::Result<(), ParquetError>,
    ) -> Result<()> {
        for group in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(group).map_err(parquet_error)?;
            let chunk = group.metadata().column(column);
            check_compression(chunk.compression())?;
            // The parquet crate panics if one of these is negative.
            let start = chunk.dictionary_page_offset().unwrap_or(0);
            if [start, chunk.data_page_offset(), chunk.compressed_size()]
                .iter()
                .any(|x| *x < 0)
            {
                return Err(Error::new("its footer is damaged; write it again"));
            }
            let schema = group.metadata().schema_descr();
            each(Chunk {
                reader: group.get_column_reader(column).map_err(parquet_error)?,
                optional: schema.column(column).max_def_level() > 0,
                rows: usize::try_from(group.metadata().num_rows()).unwrap_or_default(),
            })
            .map_err(parquet_error)?;
        }
        Ok(())
    }

    fn check_rows(&self, found: usize) -> Result<()> {
        if found >= self.rows {
            return Ok(());
        }
        Err(Error::new(format!(
            "its footer says {} rows but it has fewer; write it again",
            self.rows
        )))
    }
}

impl TextCells for Columns<'_> {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (place, &column) in columns.iter().enumerate() {
            let unsigned = match self.kinds[column] {
                Kind::Refused(why) => {
                    return Err(Error::new(format!("column {}: {why}", column + 1)));
                }
                Kind::Numbers { unsigned } => unsigned,
                Kind::Text => false,
            };
            self.each_chunk(column, |chunk| {
                chunk.each_text(unsigned, &mut |cell| each(place, cell))
            })?;
        }
        Ok(())
    }
}

/// Names of the columns that pandas marks as durations. Parquet has no such type and stores them as integers of
/// nanoseconds or another unit.
fn durations(metadata: Option<&Vec<KeyValue>>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Pandas {
        columns: Vec<Column>,
    }
    #[derive(Deserialize)]
    struct Column {
        field_name: Option<String>,
        numpy_type: Option<String>,
    }
    metadata
        .into_iter()
        .flatten()
        .filter(|pair| pair.key == "pandas")
        .filter_map(|pair| serde_json::from_str::<Pandas>(pair.value.as_deref()?).ok())
        .flat_map(|pandas| pandas.columns)
        .filter(|column| {
            let numpy = column.numpy_type.as_deref().unwrap_or_default();
            numpy.starts_with("timedelta64") || numpy.starts_with("duration")
        })
        .filter_map(|column| column.field_name)
        .collect()
}

/// How the values of a column are read.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Numbers {
        unsigned: bool,
    },
    /// Strings, categories and enumerations, read like the cells of a text table.
    Text,
    /// Not read, for this reason.
    Refused(&'static str),
}

const LISTS: &str = "lists or structures, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const DURATIONS: &str =
    "durations, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const TIMES: &str = "times of day, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const DECIMALS: &str = "fixed-point decimals, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const BYTES: &str =
    "bytes, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const OTHERS: &str = "values of another type, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";

fn kind_of(column: &ColumnDescriptor, durations: &[String]) -> Kind {
    if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
        return Kind::Refused(LISTS);
    }
    if durations.contains(&column.path().string()) {
        return Kind::Refused(DURATIONS);
    }
    let unsigned = match column.logical_type_ref() {
        // pandas gives a column of missing values no type.
        None | Some(LogicalType::Unknown) => false,
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        Some(LogicalType::String | LogicalType::Enum | LogicalType::Json) => return Kind::Text,
        Some(LogicalType::Date | LogicalType::Timestamp(_)) => return Kind::Refused(DATES),
        Some(LogicalType::Time(_)) => return Kind::Refused(TIMES),
        Some(LogicalType::Decimal(_)) => return Kind::Refused(DECIMALS),
        Some(_) => return Kind::Refused(OTHERS),
    };
    match column.physical_type() {
        Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE => {
            Kind::Numbers { unsigned }
        }
        Type::BYTE_ARRAY => Kind::Text,
        Type::INT96 => Kind::Refused(DATES),
        Type::FIXED_LEN_BYTE_ARRAY => Kind::Refused(BYTES),
    }
}

/// The part of a column in one row group.
struct Chunk {
    reader: ColumnReader,
    optional: bool,
    rows: usize,
}

impl Chunk {
    /// Calls `each` with the numbers; `None` for a null or a NaN.
    fn each_number(
        self,
        unsigned: bool,
        mut each: impl FnMut(Option<f64>),
    ) -> std::result::Result<(), ParquetError> {
        let (optional, rows) = (self.optional, self.rows);
        let mut each = |number: Option<f64>| each(number.filter(|number| !number.is_nan()));
        macro_rules! read {
            ($reader:expr, $number:expr) => {
                each_value($reader, optional, rows, |value| each(value.map($number)))
            };
        }
        match self.reader {
            ColumnReader::BoolColumnReader(r) => read!(r, |x| f64::from(*x)),
            ColumnReader::Int32ColumnReader(r) if unsigned => {
                read!(r, |x| f64::from(x.cast_unsigned()))
            }
            ColumnReader::Int32ColumnReader(r) => read!(r, |x| f64::from(*x)),
            // Beyond 2⁵³ rounded to the nearest f64.
            ColumnReader::Int64ColumnReader(r) if unsigned => {
                read!(r, |x| x.cast_unsigned() as f64)
            }
            ColumnReader::Int64ColumnReader(r) => read!(r, |x| *x as f64),
            ColumnReader::FloatColumnReader(r) => read!(r, |x| f64::from(*x)),
            ColumnReader::DoubleColumnReader(r) => read!(r, |x| *x),
            _ => Err(another_type()),
        }
    }

    /// Calls `each` with the values as a text table would have them; a null is empty.
    fn each_text(
        self,
        unsigned: bool,
        each: &mut dyn FnMut(&str),
    ) -> std::result::Result<(), ParquetError> {
        let (optional, rows) = (self.optional, self.rows);
        macro_rules! read {
            ($reader:expr, $text:expr) => {
                each_value($reader, optional, rows, |value| match value {
                    None => each(""),
                    Some(value) => each($text(value).trim()),
                })
            };
        }
        match self.reader {
            ColumnReader::BoolColumnReader(r) => {
                read!(r, |x: &bool| if *x { "True" } else { "False" })
            }
            ColumnReader::Int32ColumnReader(r) if unsigned => {
                read!(r, |x: &i32| x.cast_unsigned().to_string())
            }
            ColumnReader::Int32ColumnReader(r) => read!(r, i32::to_string),
            ColumnReader::Int64ColumnReader(r) if unsigned => {
                read!(r, |x: &i64| x.cast_unsigned().to_string())
            }
            ColumnReader::Int64ColumnReader(r) => read!(r, i64::to_string),
            ColumnReader::FloatColumnReader(r) => read!(r, f32::to_string),
            ColumnReader::DoubleColumnReader(r) => read!(r, f64::to_string),
            ColumnReader::ByteArrayColumnReader(r) => {
                each_value(r, optional, rows, |value| match value {
                    None => each(""),
                    Some(value) => each(String::from_utf8_lossy(value.data()).trim()),
                })
            }
            _ => Err(another_type()),
        }
    }
}

fn another_type() -> ParquetError {
    ParquetError::General("a column of another type".to_owned())
}

/// Calls `each` with the values of one row group; `None` for a null.
fn each_value<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    optional: bool,
    rows: usize,
    mut each: impl FnMut(Option<&T::T>),
) -> std::result::Result<(), ParquetError> {
    let mut left = rows;
    while left > 0 {
        let (mut present, mut values) = (Vec::new(), Vec::new());
        let (read, _, _) =
            reader.read_records(left.min(BATCH_ROWS), Some(&mut present), None, &mut values)?;
        if read == 0 {
            break;
        }
        left = left.saturating_sub(read);
        if optional {
            let mut values = values.iter();
            for level in present {
                each(if level == 0 { None } else { values.next() });
            }
        } else {
            values.iter().for_each(|value| each(Some(value)));
        }
    }
    Ok(())
}

fn check_compression(compression: Compression) -> Result<()> {
    match compression {
        Compression::UNCOMPRESSED | Compression::SNAPPY => Ok(()),
        other => Err(Error::new(format!(
            "it is compressed by {}; write it with snappy, as pandas does, or without compression",
            other.to_string().split('(').next().unwrap_or_default()
        ))),
    }
}

/// The crate's messages are about bytes and pages; none contains a value.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn parquet_error(error: ParquetError) -> Error {
    Error::new(format!("it cannot be read as Parquet ({error})"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::{
        data_type::{BoolType, ByteArray, ByteArrayType, FloatType, Int32Type, Int64Type},
        file::{
            properties::{WriterProperties, WriterPropertiesBuilder},
            writer::{SerializedFileWriter, SerializedRowGroupWriter},
        },
        schema::parser::parse_message_type,
    };

    use super::*;
    use crate::{
        Label,
        testing::{assert_says, without},
    };

    fn add<T: DataType>(
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        values: &[T::T],
        present: Option<&[i16]>,
    ) {
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<T>();
        typed.write_batch(values, present, None).unwrap();
        column.close().unwrap();
    }

    /// A file with `groups` equal row groups.
    fn file(
        schema: &str,
        properties: WriterPropertiesBuilder,
        groups: usize,
        fill: impl Fn(&mut SerializedRowGroupWriter<'_, Vec<u8>>),
    ) -> Vec<u8> {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(properties.build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        for _ in 0..groups {
            let mut group = writer.next_row_group().unwrap();
            fill(&mut group);
            group.close().unwrap();
        }
        writer.into_inner().unwrap()
    }

    /// A footer whose number of rows differs from that of its groups: memory would be reserved for either.
    #[test]
    fn the_footer_must_agree_with_the_row_groups() {
        let schema = "message schema { required float a; }";
        let good = file(schema, WriterProperties::builder(), 1, |group| {
            add::<FloatType>(group, &[1.0; 77], None);
        });
        let table = |bytes: &[u8]| parse(bytes, &Settings::default(), None);
        assert_eq!(table(&good).unwrap().len(), 77);
        // 77 is written as 154 in the footer: of the page, the group and the file.
        let footer = good.len() - 8 - usize::from(good[good.len() - 8]);
        let places = (footer..good.len() - 8).filter(|&at| good[at] == 154);
        let refused = places.filter_map(|at| {
            let mut bad = good.clone();
            bad.splice(at..=at + 1, [130, 1]);
            table(&bad).err().map(|error| error.to_string())
        });
        let unlike = refused.filter(|error| error.contains("rows but its row groups have"));
        assert_eq!(unlike.count(), 2);
    }

    /// The metadata pandas 2.2 writes for `pandas.to_timedelta([1, 2], "s")`.
    #[test]
    fn durations_are_refused() {
        let pandas = r#"{"columns": [
            {"name": "a", "field_name": "a", "pandas_type": "timedelta", "numpy_type": "timedelta64[ns]"},
            {"name": null, "field_name": null, "pandas_type": "int64", "numpy_type": "int64"}]}"#;
        let schema = "message schema { optional int64 a; required float b; }";
        let pandas = vec![KeyValue::new("pandas".to_owned(), pandas.to_owned())];
        let properties = WriterProperties::builder().set_key_value_metadata(Some(pandas));
        let bytes = file(schema, properties, 1, |group| {
            add::<Int64Type>(group, &[1_000_000_000, 2_000_000_000], Some(&[1, 1]));
            add::<FloatType>(group, &[2.0, 3.0], None);
        });
        let error = parse(&bytes, &Settings::default(), None).unwrap_err();
        assert_says(&error, &["column 1 (a): durations"], &[]);
        let others = parse(&bytes, &without(&["a"]), None).unwrap();
        assert_eq!(others.dimension(), 1);
    }

    /// pandas gives a column of only missing values no type.
    #[test]
    fn a_column_without_values_is_read_as_missing() {
        let schema = "message schema { optional int32 a (unknown); required float b; }";
        let bytes = file(schema, WriterProperties::builder(), 1, |group| {
            add::<Int32Type>(group, &[], Some(&[0]));
            add::<FloatType>(group, &[2.0], None);
        });
        let table = parse(&bytes, &Settings::default(), None).unwrap();
        assert!(table.row(0).values()[0].is_nan());
        assert_eq!(table.row(0).values()[1], 2.0);
    }

    /// Two row groups of two rows.
    fn written(compression: Compression) -> Vec<u8> {
        let schema = "message schema {
            required boolean flag;
            optional int32 small;
            required int64 large (integer(64, false));
            required float half;
            required int32 day (date);
        }";
        let properties = WriterProperties::builder().set_compression(compression);
        file(schema, properties, 2, |group| {
            add::<BoolType>(group, &[true, false], None);
            add::<Int32Type>(group, &[-7], Some(&[0, 1]));
            add::<Int64Type>(group, &[-1, 5], None);
            add::<FloatType>(group, &[0.5, 1.5], None);
            add::<Int32Type>(group, &[20_000, 20_001], None);
        })
    }

    #[test]
    fn numbers_of_all_types_are_read() {
        let table = parse(&written(Compression::SNAPPY), &without(&["day"]), None).unwrap();
        assert_eq!(table.names().unwrap(), ["flag", "small", "large", "half"]);
        assert_eq!((table.len(), table.dimension()), (4, 4));
        for row in [1, 3] {
            assert_eq!(table.row(row).values(), &[0.0, -7.0, 5.0, 1.5]);
        }
        let first = table.row(2);
        assert!(first.values()[1].is_nan());
        assert_eq!(first.values()[2], 2.0_f64.powi(64));
        let error = table.check_readable().unwrap_err();
        assert_says(&error, &["column 2 (small): 2 values are missing"], &[]);
    }

    /// Strings, as which categories are stored too: numbers in them are read as in CSV; columns of text are refused in
    /// the same words as in CSV, together with columns of other types.
    #[test]
    fn text_is_read_as_in_a_text_table() {
        let schema = "message schema {
            required int32 day (date);
            required binary kind (string);
            optional binary dose (string);
            required binary note;
            required boolean flag;
        }";
        let bytes = file(schema, WriterProperties::builder(), 2, |group| {
            let text = |values: [&str; 4]| values.map(ByteArray::from);
            add::<Int32Type>(group, &[1, 2, 3, 4], None);
            add::<ByteArrayType>(group, &text(["low", "high", "low", "low"]), None);
            add::<ByteArrayType>(
                group,
                &text(["1.5", "\u{2212}2", "<0.5", ""])[..3],
                Some(&[1, 1, 1, 0]),
            );
            add::<ByteArrayType>(group, &text(["a b", "c d", "e f", "g h"]), None);
            add::<BoolType>(group, &[true, false, true, true], None);
        });
        let error = parse(&bytes, &Settings::default(), None).unwrap_err();
        let messages = [
            "column 1 (day): dates, not numbers",
            "column 2 (kind), column 4 (note): text in most rows, few values",
            "column 3 (dose): 2 values are not numbers",
            "column 3 (dose): 2 values are missing",
        ];
        assert_says(&error, &messages, &["low", "0.5"]);
        let table = parse(&bytes, &without(&["day", "kind", "note"]), None).unwrap();
        assert_eq!(table.row(5).values(), &[-2.0, 0.0]);
        assert!(table.row(2).values()[0].is_nan() && table.row(7).values()[0].is_nan());

        let settings = Settings {
            one_hot: Some(vec!["kind".to_owned(), "flag".to_owned()]),
            label: Some(Label {
                flag: "--label",
                column: "note".to_owned(),
            }),
            ..without(&["day", "dose"])
        };
        let table = parse(&bytes, &settings, None).unwrap();
        assert_eq!(
            table.names().unwrap(),
            ["kind=high", "kind=low", "flag=False", "flag=True"]
        );
        assert_eq!(table.row(1).values(), &[1.0, 0.0, 1.0, 0.0]);
        assert_eq!(table.labels()[3..5], ["g h", "a b"]);
    }

    #[test]
    fn unusable_columns_and_damaged_files_are_errors() {
        let good = written(Compression::UNCOMPRESSED);
        let error = parse(&good, &Settings::default(), None).unwrap_err();
        assert_says(&error, &["column 5 (day): dates", "`drop`"], &[]);
        let settings = without(&["day"]);
        for cut in 0..good.len() {
            assert!(
                parse(&good[..cut], &settings, None).is_err(),
                "cut to {cut}"
            );
        }
        // With any one byte changed it is a table or an error, never a panic.
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            let _ = parse(&bad, &settings, None);
        }
        assert!(check_compression(Compression::ZSTD(Default::default())).is_err());
    }
}
