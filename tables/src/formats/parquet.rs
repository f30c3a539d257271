//! Parquet tables: columns of numbers, by name; text columns are read as in a text table.
//!
//! Types and names come from the file's footer; only the selected columns are read. A null is a missing value.

use std::ops::Range;

use bytes::Bytes;
use parquet::{
    basic::{Compression, ConvertedType, LogicalType, Type},
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

use super::typed_columns::{Kind, TypedColumns, read_table};
use crate::{
    cells::normalized,
    columns::{self, ExpectedColumns, FileColumns},
    encoding::decode_cell,
    error::{Error, Result},
    settings::Settings,
    table::{RowTable, check_columns},
    text_columns::TextCells,
};

const BATCH_ROWS: usize = 1 << 16;

pub(crate) fn parse(
    bytes: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let bytes = Bytes::copy_from_slice(bytes);
    let file = SerializedFileReader::new(bytes).map_err(parquet_error)?;
    let metadata = file.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let names = schema.columns().iter();
    let names = names.map(|column| normalized(&column.path().string()).into_owned());
    let in_file = FileColumns {
        count: schema.num_columns(),
        names: Some(names.collect()),
        names_may_be_shown: true,
    };
    check_columns(in_file.count)?;
    let mapping = columns::map_columns(in_file, settings, expected)?;
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or_default();
    let rows_of_groups = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    let rows_of_groups = rows_of_groups.fold(0_i64, i64::saturating_add);
    if usize::try_from(rows_of_groups) != Ok(rows) {
        return Err(Error::new(format!(
            "its footer says {rows} rows but its row groups have {rows_of_groups}; write it again"
        )));
    }
    let durations = durations(metadata.file_metadata().key_value_metadata());
    let kinds = schema.columns().iter();
    let kinds = kinds.map(|column| kind_of(column, &durations)).collect();
    let columns = Columns {
        file: &file,
        kinds,
        rows,
    };
    read_table(columns, mapping, settings, expected)
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
}

impl TextCells for Columns<'_> {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (index, &column) in columns.iter().enumerate() {
            if let Kind::Refused(why) = self.kinds[column] {
                return Err(Error::new(format!("column {}: {why}", column + 1)));
            }
            let is_unsigned = self.kinds[column] == Kind::Unsigned;
            self.each_chunk(column, |chunk| {
                chunk.each_text(is_unsigned, &mut |cell| each(index, cell))
            })?;
        }
        Ok(())
    }
}

impl TypedColumns for Columns<'_> {
    // 1 GiB of memory, and as much again temporarily: a small file can expand to very many values.
    const MAX_VALUES: usize = 1 << 27;

    fn rows(&self) -> usize {
        self.rows
    }

    fn kind(&self, column: usize) -> Kind {
        self.kinds[column]
    }

    fn each_number(&mut self, column: usize, each: &mut dyn FnMut(f64)) -> Result<()> {
        let is_unsigned = self.kinds[column] == Kind::Unsigned;
        self.each_chunk(column, |chunk| chunk.each_number(is_unsigned, &mut *each))
    }
}

/// Names of the columns that pandas marks as durations. Parquet has no such type and stores them as integers, in
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

const LISTS: &str = "lists or structures, not numbers; leave it out with `drop`, or write it as floats, integers or booleans";
const DATES: &str = "dates, not numbers: write days since a fixed day, such as 1970-01-01, in this file and on every device, or leave it out with `drop`";
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
    let declared = column.logical_type_ref();
    kind_of_type(column.physical_type(), declared, column.converted_type())
}

/// The kind of a column by its declared type: the logical type, or the converted type used before 2019, which is the
/// only one that Spark 2, Hive and others write. Without either, the physical type decides.
fn kind_of_type(stored: Type, declared: Option<&LogicalType>, converted: ConvertedType) -> Kind {
    use ConvertedType as C;
    use LogicalType as L;
    match (declared, converted) {
        // pandas writes a column of missing values without a type.
        (None, C::NONE) | (Some(L::Unknown), _) => match stored {
            Type::BOOLEAN | Type::INT32 | Type::INT64 => Kind::Whole,
            Type::FLOAT | Type::DOUBLE => Kind::Floating,
            Type::BYTE_ARRAY => Kind::Text,
            Type::INT96 => Kind::Refused(DATES),
            Type::FIXED_LEN_BYTE_ARRAY => Kind::Refused(BYTES),
        },
        (Some(L::String | L::Enum | L::Json | L::Uuid), _)
        | (None, C::UTF8 | C::ENUM | C::JSON) => Kind::Text,
        (Some(L::Integer(integer)), _) if !integer.is_signed => Kind::Unsigned,
        (None, C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64) => Kind::Unsigned,
        (Some(L::Integer(_)), _) | (None, C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64) => {
            Kind::Whole
        }
        (Some(L::Date | L::Timestamp(_)), _)
        | (None, C::DATE | C::TIMESTAMP_MILLIS | C::TIMESTAMP_MICROS) => Kind::Refused(DATES),
        (Some(L::Time(_)), _) | (None, C::TIME_MILLIS | C::TIME_MICROS) => Kind::Refused(TIMES),
        (Some(L::Decimal(_)), _) | (None, C::DECIMAL) => Kind::Refused(DECIMALS),
        (None, C::INTERVAL) => Kind::Refused(DURATIONS),
        _ => Kind::Refused(OTHERS),
    }
}

/// The part of a column in one row group.
struct Chunk {
    reader: ColumnReader,
    optional: bool,
    rows: usize,
}

impl Chunk {
    /// Calls `each` with the numbers; NaN for a null.
    fn each_number(
        self,
        unsigned: bool,
        each: &mut dyn FnMut(f64),
    ) -> std::result::Result<(), ParquetError> {
        let (optional, rows) = (self.optional, self.rows);
        macro_rules! read {
            ($reader:expr, $number:expr) => {
                each_value($reader, optional, rows, |value| {
                    each(value.map_or(f64::NAN, $number));
                })
            };
        }
        match self.reader {
            ColumnReader::BoolColumnReader(r) => read!(r, |x| f64::from(*x)),
            ColumnReader::Int32ColumnReader(r) if unsigned => {
                read!(r, |x| f64::from(x.cast_unsigned()))
            }
            ColumnReader::Int32ColumnReader(r) => read!(r, |x| f64::from(*x)),
            // Beyond 2⁵³, rounded to the nearest f64.
            ColumnReader::Int64ColumnReader(r) if unsigned => {
                read!(r, |x| x.cast_unsigned() as f64)
            }
            ColumnReader::Int64ColumnReader(r) => read!(r, |x| *x as f64),
            ColumnReader::FloatColumnReader(r) => read!(r, |x| f64::from(*x)),
            ColumnReader::DoubleColumnReader(r) => read!(r, |x| *x),
            _ => Err(unexpected_type_error()),
        }
    }

    /// Calls `each` with the values as in a text table, Booleans as `true` and `false`; a null is empty.
    fn each_text(
        self,
        unsigned: bool,
        each: &mut dyn FnMut(&str),
    ) -> std::result::Result<(), ParquetError> {
        let (optional, rows) = (self.optional, self.rows);
        macro_rules! read {
            ($reader:expr, $text:expr) => {
                each_value($reader, optional, rows, |value| {
                    each(value.map($text).as_deref().unwrap_or_default());
                })
            };
        }
        match self.reader {
            ColumnReader::BoolColumnReader(r) => read!(r, bool::to_string),
            ColumnReader::Int32ColumnReader(r) if unsigned => {
                read!(r, |x| x.cast_unsigned().to_string())
            }
            ColumnReader::Int32ColumnReader(r) => read!(r, i32::to_string),
            ColumnReader::Int64ColumnReader(r) if unsigned => {
                read!(r, |x| x.cast_unsigned().to_string())
            }
            ColumnReader::Int64ColumnReader(r) => read!(r, i64::to_string),
            ColumnReader::FloatColumnReader(r) => read!(r, |x| format!("{x:?}")),
            ColumnReader::DoubleColumnReader(r) => read!(r, |x| format!("{x:?}")),
            ColumnReader::ByteArrayColumnReader(r) => read!(r, |x| decode_cell(x.data())),
            ColumnReader::FixedLenByteArrayColumnReader(r) => read!(r, |x| uuid(x.data())),
            _ => Err(unexpected_type_error()),
        }
    }
}

/// The text of a UUID, the only type of bytes of fixed length that is read.
fn uuid(bytes: &[u8]) -> String {
    let digits = |part: Range<usize>| {
        let bytes = bytes.get(part).unwrap_or_default().iter();
        bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    [0..4, 4..6, 6..8, 8..10, 10..16].map(digits).join("-")
}

fn unexpected_type_error() -> ParquetError {
    ParquetError::General("a column of another type".to_owned())
}

/// Calls `each` with the values of one row group; `None` for a null.
fn each_value<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    optional: bool,
    rows: usize,
    mut each: impl FnMut(Option<&T::T>),
) -> std::result::Result<(), ParquetError> {
    let mut remaining = rows;
    while remaining > 0 {
        let (mut present, mut values) = (Vec::new(), Vec::new());
        let (read, _, _) = reader.read_records(
            remaining.min(BATCH_ROWS),
            Some(&mut present),
            None,
            &mut values,
        )?;
        if read == 0 {
            let error = "a column has fewer rows than its row group".to_owned();
            return Err(ParquetError::General(error));
        }
        remaining = remaining.saturating_sub(read);
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
        basic::{Repetition, TimeUnit},
        data_type::{
            BoolType, ByteArray, ByteArrayType, FloatType, Int32Type, Int64Type, Int96, Int96Type,
        },
        file::{
            properties::{WriterProperties, WriterPropertiesBuilder},
            writer::{SerializedFileWriter, SerializedRowGroupWriter},
        },
        schema::{
            parser::parse_message_type,
            types::{ColumnPath, Type as SchemaType, TypePtr},
        },
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

    fn schema(text: &str) -> TypePtr {
        Arc::new(parse_message_type(text).unwrap())
    }

    /// A file with `groups` equal row groups.
    fn file(
        schema: TypePtr,
        properties: WriterPropertiesBuilder,
        groups: usize,
        fill: impl Fn(&mut SerializedRowGroupWriter<'_, Vec<u8>>),
    ) -> Vec<u8> {
        let properties = Arc::new(properties.build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        for _ in 0..groups {
            let mut group = writer.next_row_group().unwrap();
            fill(&mut group);
            group.close().unwrap();
        }
        writer.into_inner().unwrap()
    }

    /// A column of this type, if it is valid.
    fn column(
        name: &str,
        stored: Type,
        declared: Option<LogicalType>,
        converted: ConvertedType,
        length: i32,
    ) -> Option<TypePtr> {
        let builder = SchemaType::primitive_type_builder(name, stored)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(declared)
            .with_converted_type(converted)
            .with_length(length)
            .with_precision(9)
            .with_scale(2);
        builder.build().ok().map(Arc::new)
    }

    type Kinds = &'static [(Type, Kind)];

    const STORED: Kinds = &[
        (Type::BOOLEAN, Kind::Whole),
        (Type::INT32, Kind::Whole),
        (Type::INT64, Kind::Whole),
        (Type::INT96, Kind::Refused(DATES)),
        (Type::FLOAT, Kind::Floating),
        (Type::DOUBLE, Kind::Floating),
        (Type::BYTE_ARRAY, Kind::Text),
        (Type::FIXED_LEN_BYTE_ARRAY, Kind::Refused(BYTES)),
    ];
    const DECIMAL: Kinds = &[
        (Type::INT32, Kind::Refused(DECIMALS)),
        (Type::INT64, Kind::Refused(DECIMALS)),
        (Type::BYTE_ARRAY, Kind::Refused(DECIMALS)),
        (Type::FIXED_LEN_BYTE_ARRAY, Kind::Refused(DECIMALS)),
    ];
    const TEXT: Kinds = &[(Type::BYTE_ARRAY, Kind::Text)];
    const DATE: Kinds = &[(Type::INT32, Kind::Refused(DATES))];
    const TIMESTAMP: Kinds = &[(Type::INT64, Kind::Refused(DATES))];
    const TIME_32: Kinds = &[(Type::INT32, Kind::Refused(TIMES))];
    const TIME_64: Kinds = &[(Type::INT64, Kind::Refused(TIMES))];
    const UNSIGNED_32: Kinds = &[(Type::INT32, Kind::Unsigned)];
    const UNSIGNED_64: Kinds = &[(Type::INT64, Kind::Unsigned)];
    const SIGNED_32: Kinds = &[(Type::INT32, Kind::Whole)];
    const SIGNED_64: Kinds = &[(Type::INT64, Kind::Whole)];
    const OTHER: Kinds = &[(Type::BYTE_ARRAY, Kind::Refused(OTHERS))];
    const OTHER_FIXED: Kinds = &[(Type::FIXED_LEN_BYTE_ARRAY, Kind::Refused(OTHERS))];
    const UUID: Kinds = &[(Type::FIXED_LEN_BYTE_ARRAY, Kind::Text)];
    const INTERVAL: Kinds = &[(Type::FIXED_LEN_BYTE_ARRAY, Kind::Refused(DURATIONS))];

    /// Every converted type, with the physical types that it allows.
    const CONVERTED_TYPES: [(ConvertedType, Kinds); 23] = [
        (ConvertedType::NONE, STORED),
        (ConvertedType::UTF8, TEXT),
        (ConvertedType::MAP, &[]),
        (ConvertedType::MAP_KEY_VALUE, &[]),
        (ConvertedType::LIST, &[]),
        (ConvertedType::ENUM, TEXT),
        (ConvertedType::DECIMAL, DECIMAL),
        (ConvertedType::DATE, DATE),
        (ConvertedType::TIME_MILLIS, TIME_32),
        (ConvertedType::TIME_MICROS, TIME_64),
        (ConvertedType::TIMESTAMP_MILLIS, TIMESTAMP),
        (ConvertedType::TIMESTAMP_MICROS, TIMESTAMP),
        (ConvertedType::UINT_8, UNSIGNED_32),
        (ConvertedType::UINT_16, UNSIGNED_32),
        (ConvertedType::UINT_32, UNSIGNED_32),
        (ConvertedType::UINT_64, UNSIGNED_64),
        (ConvertedType::INT_8, SIGNED_32),
        (ConvertedType::INT_16, SIGNED_32),
        (ConvertedType::INT_32, SIGNED_32),
        (ConvertedType::INT_64, SIGNED_64),
        (ConvertedType::JSON, TEXT),
        (ConvertedType::BSON, OTHER),
        (ConvertedType::INTERVAL, INTERVAL),
    ];

    /// Every logical type, with the physical types that it allows.
    fn logical_types() -> [(LogicalType, Kinds); 28] {
        use LogicalType as L;
        use TimeUnit::{MICROS, MILLIS, NANOS};
        [
            (L::Unknown, STORED),
            (L::String, TEXT),
            (L::Map, &[]),
            (L::List, &[]),
            (L::File, &[]),
            (L::variant(None), &[]),
            (L::Enum, TEXT),
            (L::decimal(2, 9), DECIMAL),
            (L::Date, DATE),
            (L::time(true, MILLIS), TIME_32),
            (L::time(false, MICROS), TIME_64),
            (L::time(false, NANOS), TIME_64),
            (L::timestamp(false, MILLIS), TIMESTAMP),
            (L::timestamp(true, MICROS), TIMESTAMP),
            (L::timestamp(false, NANOS), TIMESTAMP),
            (L::integer(8, false), UNSIGNED_32),
            (L::integer(16, false), UNSIGNED_32),
            (L::integer(32, false), UNSIGNED_32),
            (L::integer(64, false), UNSIGNED_64),
            (L::integer(8, true), SIGNED_32),
            (L::integer(16, true), SIGNED_32),
            (L::integer(32, true), SIGNED_32),
            (L::integer(64, true), SIGNED_64),
            (L::Json, TEXT),
            (L::Bson, OTHER),
            (L::geometry(None), OTHER),
            (L::Uuid, UUID),
            (L::Float16, OTHER_FIXED),
        ]
    }

    #[test]
    fn a_column_is_read_by_the_type_that_it_declares() {
        let converted_types = CONVERTED_TYPES.map(|(converted, kinds)| (None, converted, kinds));
        let logical_types =
            logical_types().map(|(declared, kinds)| (Some(declared), ConvertedType::NONE, kinds));
        for (declared, converted, expected) in converted_types.into_iter().chain(logical_types) {
            let kinds = STORED.iter().filter_map(|&(stored, _)| {
                let with_length = |length| column("a", stored, declared.clone(), converted, length);
                let primitive = [2, 12, 16].into_iter().find_map(with_length)?;
                let path = ColumnPath::new(vec!["a".to_owned()]);
                let descriptor = ColumnDescriptor::new(primitive, 0, 0, path);
                Some((stored, kind_of(&descriptor, &[])))
            });
            let kinds: Vec<(Type, Kind)> = kinds.collect();
            assert_eq!(kinds, expected, "{declared:?} {converted}");
        }
    }

    /// Files of four writers (three by `tests/parquet/make.py`): each column's name begins with its kind. A column of
    /// labels is text.
    #[test]
    fn files_of_other_writers_are_read_by_their_types() {
        // Types as written by Spark 2 and Hive.
        let spark = [
            (Type::INT32, ConvertedType::DECIMAL, "decimals_9"),
            (Type::INT64, ConvertedType::DECIMAL, "decimals_18"),
            (Type::INT64, ConvertedType::TIMESTAMP_MILLIS, "dates_ms"),
            (Type::INT96, ConvertedType::NONE, "dates_96"),
            (Type::INT32, ConvertedType::INT_8, "whole_8"),
            (Type::INT32, ConvertedType::UINT_32, "unsigned_32"),
        ];
        let fields =
            spark.map(|(stored, suffix, name)| column(name, stored, None, suffix, 0).unwrap());
        let schema = SchemaType::group_type_builder("spark_schema").with_fields(fields.into());
        let schema = Arc::new(schema.build().unwrap());
        let spark = file(schema, WriterProperties::builder(), 1, |group| {
            add::<Int32Type>(group, &[1976, 100], None);
            add::<Int64Type>(group, &[1976, 100], None);
            add::<Int64Type>(group, &[1976, 100], None);
            add::<Int96Type>(group, &[Int96::new(), Int96::new()], None);
            add::<Int32Type>(group, &[1, -2], None);
            add::<Int32Type>(group, &[1, 3_000_000_000_u32.cast_signed()], None);
        });
        for (bytes, columns) in [
            (
                &include_bytes!("../../tests/parquet/pyarrow.parquet")[..],
                29,
            ),
            (include_bytes!("../../tests/parquet/duckdb.parquet"), 26),
            (
                include_bytes!("../../tests/parquet/fastparquet.parquet"),
                13,
            ),
            (&spark[..], 6),
        ] {
            let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).unwrap();
            let schema = reader.metadata().file_metadata().schema_descr();
            assert_eq!(schema.num_columns(), columns);
            for column in schema.columns() {
                let name = column.path().string();
                let keep = Settings {
                    keep: Some(vec![name.clone()]),
                    ..Settings::default()
                };
                let persons = Settings {
                    label: Some(Label {
                        flag: "--person",
                        column: name.clone(),
                    }),
                    keep: Some(vec!["whole_8".to_owned()]),
                    ..Settings::default()
                };
                let (kind, suffix) = name.split_once('_').unwrap();
                let second = match (kind, suffix) {
                    (_, "null") => f64::NAN,
                    (_, "bool") => 0.0,
                    ("unsigned", "8") => 200.0,
                    ("unsigned", "16") => 60_000.0,
                    ("unsigned", "32") => 3e9,
                    ("unsigned", "64") => 2_f64.powi(63) + 2_f64.powi(60),
                    _ => -2.0,
                };
                let words = match kind {
                    "whole" | "unsigned" | "floating" | "text" => {
                        let table = parse(bytes, &keep, None).unwrap();
                        let read = table.row(1).values()[0];
                        assert!(read == second || second.is_nan() && read.is_nan(), "{name}");
                        continue;
                    }
                    _ if suffix == "uuid" => {
                        let text = "00000000-0000-0000-0000-000000000001";
                        let table = parse(bytes, &persons, None).unwrap();
                        assert_eq!(table.labels(), [text, text]);
                        continue;
                    }
                    "dates" => DATES,
                    // fastparquet writes durations as times; pandas' metadata distinguishes them.
                    "times" if suffix == "timedelta" => DURATIONS,
                    "times" => TIMES,
                    "decimals" => DECIMALS,
                    "durations" => DURATIONS,
                    "bytes" => BYTES,
                    "lists" => LISTS,
                    _ => OTHERS,
                };
                assert_says(&parse(bytes, &keep, None).unwrap_err(), &[words], &[]);
                let error = parse(bytes, &persons, None).unwrap_err();
                assert_says(&error, &["write it as text"], &[]);
            }
        }
    }

    /// A footer whose number of rows differs from that of its groups is refused: memory would be reserved for either
    /// number.
    #[test]
    fn the_footer_must_agree_with_the_row_groups() {
        let schema = schema("message schema { required float a; }");
        let good = file(schema, WriterProperties::builder(), 1, |group| {
            add::<FloatType>(group, &[1.0; 77], None);
        });
        let table = |bytes: &[u8]| parse(bytes, &Settings::default(), None);
        assert_eq!(table(&good).unwrap().len(), 77);
        // 77 is written as 154 in the footer: of the page, the group and the file.
        let footer = good.len() - 8 - usize::from(good[good.len() - 8]);
        let positions = (footer..good.len() - 8).filter(|&position| good[position] == 154);
        let refused = positions.filter_map(|position| {
            let mut bad = good.clone();
            bad.splice(position..=position + 1, [130, 1]);
            table(&bad).err().map(|error| error.to_string())
        });
        let inconsistent = refused.filter(|error| error.contains("rows but its row groups have"));
        assert_eq!(inconsistent.count(), 2);
    }

    /// The metadata pandas 2.2 writes for `pandas.to_timedelta([1, 2], "s")`.
    #[test]
    fn durations_are_refused() {
        let pandas = r#"{"columns": [
            {"name": "a", "field_name": "a", "pandas_type": "timedelta", "numpy_type": "timedelta64[ns]"},
            {"name": null, "field_name": null, "pandas_type": "int64", "numpy_type": "int64"}]}"#;
        let schema = schema("message schema { optional int64 a; required float b; }");
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
        let schema = schema("message schema { optional int32 a (unknown); required float b; }");
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
        let schema = schema(
            "message schema {
            required boolean flag;
            optional int32 small;
            required int64 large (integer(64, false));
            required float half;
            required int32 day (date);
        }",
        );
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
        let schema = schema(
            "message schema {
            required int32 day (date);
            required binary kind (string);
            optional binary dose (string);
            required binary note;
            required boolean flag;
        }",
        );
        let bytes = file(schema, WriterProperties::builder(), 5, |group| {
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
            "column 2 (kind), column 4 (note): most of its cells are no numbers",
            "column 3 (dose): 5 values are numbers spelled otherwise",
            "column 3 (dose): 5 values are missing",
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
        assert_eq!(table.names().unwrap(), ["kind=low|high", "flag=true|false"]);
        assert_eq!(table.row(1).values(), &[0.0, 0.0]);
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
