//! Parquet tables: columns of numbers, by name.
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

use super::{
    columns::{self, ExpectedColumns, FileColumns},
    flags::TableArgs,
    problems::{Problems, Unreadable, UnreadableReason},
    table::{RowTable, check_columns},
};
use crate::error::{CliError, Result};

/// Largest number of values read (1 GiB of memory, and as much again temporarily): a small file can expand to many.
const MAX_VALUES: usize = 1 << 27;
const BATCH_ROWS: usize = 1 << 16;

pub(super) fn parse(
    bytes: &[u8],
    how: &TableArgs,
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
        headerless: false,
    };
    check_columns(found.count)?;
    let mapping = columns::map_columns(found, how, expected)?;
    if let Some(at) = (0..mapping.take.len()).find(|&at| mapping.category(at).is_some()) {
        return Err(CliError::usage(format!(
            "{} is text that stands for a category; write the table as CSV, where it is read as 0 and 1",
            mapping.column(at)
        )));
    }
    let durations = durations(metadata.file_metadata().key_value_metadata());
    let unsigned = mapping.take.iter();
    let unsigned = unsigned.map(|&at| is_unsigned(&schema.column(at), &durations));
    let unsigned = unsigned.collect::<Result<Vec<_>>>()?;
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or_default();
    let wide = mapping.take.len();
    if rows.saturating_mul(wide) > MAX_VALUES {
        return Err(CliError::usage(format!(
            "{rows} rows of {wide} values need too much memory; give fewer rows or columns"
        )));
    }
    let of_groups = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    let of_groups = of_groups.fold(0_i64, i64::saturating_add);
    if usize::try_from(of_groups) != Ok(rows) {
        return Err(CliError::usage(format!(
            "its footer says {rows} rows but its row groups have {of_groups}; write it again"
        )));
    }
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); wide];
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(parquet_error)?;
        for ((&at, &unsigned), column) in mapping.take.iter().zip(&unsigned).zip(&mut columns) {
            let chunk = group.metadata().column(at);
            check_compression(chunk.compression())?;
            // The crate panics if one is negative.
            let start = chunk.dictionary_page_offset().unwrap_or(0);
            if [start, chunk.data_page_offset(), chunk.compressed_size()]
                .iter()
                .any(|x| *x < 0)
            {
                return Err(CliError::usage("its footer is damaged; write it again"));
            }
            let reader = group.get_column_reader(at).map_err(parquet_error)?;
            let optional = group.metadata().schema_descr().column(at).max_def_level() > 0;
            let wants = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
            read(reader, unsigned, optional, wants, column).map_err(parquet_error)?;
        }
    }
    let mut values = Vec::with_capacity(rows.min(columns[0].len()) * wide);
    let mut problems = Problems::default();
    for row in 0..rows {
        for (named, column) in columns.iter().enumerate() {
            let Some(&value) = column.get(row) else {
                return Err(CliError::usage(format!(
                    "its footer says {rows} rows but it has fewer; write it again"
                )));
            };
            if value.is_nan() {
                problems.record(Unreadable {
                    line: row + 1,
                    column: Some(mapping.take[named] + 1),
                    named: Some(named),
                    reason: UnreadableReason::Missing,
                });
            }
            values.push(value);
        }
    }
    Ok(RowTable::new(wide, values, None)?
        .with_problems(problems)
        .with_mapping(mapping))
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

/// Whether the integers of a column are unsigned.
/// Wrong usage that names a column that does not hold numbers.
fn is_unsigned(column: &ColumnDescriptor, durations: &[String]) -> Result<bool> {
    let refused = |what: &str| {
        Err(CliError::usage(format!(
            "column {:?} holds {what}, not numbers; leave it out with --drop, or write it as floats, integers or booleans",
            column.path().string()
        )))
    };
    if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
        return refused("lists or structures");
    }
    if durations.contains(&column.path().string()) {
        return refused("durations");
    }
    let unsigned = match column.logical_type_ref() {
        // pandas gives a column of missing values no type.
        None | Some(LogicalType::Unknown) => false,
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        Some(LogicalType::String | LogicalType::Enum | LogicalType::Json) => {
            return refused("text");
        }
        Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_)) => {
            return refused("dates or times");
        }
        Some(LogicalType::Decimal(_)) => return refused("fixed-point decimals"),
        Some(_) => return refused("values of another type"),
    };
    match column.physical_type() {
        Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE => Ok(unsigned),
        Type::BYTE_ARRAY => refused("text"),
        Type::INT96 => refused("dates or times"),
        Type::FIXED_LEN_BYTE_ARRAY => refused("bytes"),
    }
}

/// Appends the values of one row group; a null becomes NaN.
fn read(
    reader: ColumnReader,
    unsigned: bool,
    optional: bool,
    rows: usize,
    into: &mut Vec<f64>,
) -> std::result::Result<(), ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(r) => append_all(r, optional, rows, f64::from, into),
        ColumnReader::Int32ColumnReader(r) if unsigned => {
            append_all(r, optional, rows, |x| f64::from(x.cast_unsigned()), into)
        }
        ColumnReader::Int32ColumnReader(r) => append_all(r, optional, rows, f64::from, into),
        // Beyond 2⁵³ rounded to the nearest f64.
        ColumnReader::Int64ColumnReader(r) if unsigned => {
            append_all(r, optional, rows, |x| x.cast_unsigned() as f64, into)
        }
        ColumnReader::Int64ColumnReader(r) => append_all(r, optional, rows, |x| x as f64, into),
        ColumnReader::FloatColumnReader(r) => append_all(r, optional, rows, f64::from, into),
        ColumnReader::DoubleColumnReader(r) => append_all(r, optional, rows, |x| x, into),
        _ => Err(ParquetError::General("a column of another type".to_owned())),
    }
}

fn append_all<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    optional: bool,
    rows: usize,
    number: impl Fn(T::T) -> f64,
    into: &mut Vec<f64>,
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
        let mut values = values.into_iter().map(&number);
        if optional {
            into.extend(present.iter().map(|&level| match level {
                0 => f64::NAN,
                _ => values.next().unwrap_or(f64::NAN),
            }));
        } else {
            into.extend(values);
        }
    }
    Ok(())
}

fn check_compression(compression: Compression) -> Result<()> {
    match compression {
        Compression::UNCOMPRESSED | Compression::SNAPPY => Ok(()),
        other => Err(CliError::usage(format!(
            "it is compressed by {}; write it with snappy, as pandas does, or without compression",
            other.to_string().split('(').next().unwrap_or_default()
        ))),
    }
}

/// The crate's messages are about bytes and pages; none contains a value.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn parquet_error(error: ParquetError) -> CliError {
    CliError::usage(format!("it cannot be read as Parquet ({error})"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::{
        data_type::{BoolType, FloatType, Int32Type, Int64Type},
        file::{
            properties::{WriterProperties, WriterPropertiesBuilder},
            writer::{SerializedFileWriter, SerializedRowGroupWriter},
        },
        schema::parser::parse_message_type,
    };

    use super::*;
    use crate::error::assert_says;
    use crate::rows::flags::Names;

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

    /// A file of so many row groups alike.
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
        let table = |bytes: &[u8]| parse(bytes, &TableArgs::default(), None);
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
        let error = parse(&bytes, &TableArgs::default(), None).unwrap_err();
        assert_says(&error, &["\"a\" holds durations"], &[]);
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
        let table = parse(&bytes, &TableArgs::default(), None).unwrap();
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

    fn without(names: &[&str]) -> TableArgs {
        TableArgs {
            drop: Some(Names(names.iter().map(|&name| name.to_owned()).collect())),
            ..TableArgs::default()
        }
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

    #[test]
    fn unusable_columns_and_damaged_files_are_errors() {
        let good = written(Compression::UNCOMPRESSED);
        let error = parse(&good, &TableArgs::default(), None).unwrap_err();
        assert_says(&error, &["\"day\" holds dates", "--drop"], &[]);
        let how = without(&["day"]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut], &how, None).is_err(), "cut to {cut}");
        }
        // With any one byte changed it is a table or an error, never a panic.
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            let _ = parse(&bad, &how, None);
        }
        assert!(check_compression(Compression::ZSTD(Default::default())).is_err());
    }
}
