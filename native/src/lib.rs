//! The border: what Python calls by ctypes. All memory is the caller's, laid out as Arrow's, and nothing is kept.
//! Only this file is `unsafe`: it makes slices of the pointers and calls the others, which check every index. A panic
//! ends here, too: the caller then takes the Python path.

mod json_lines;
mod texts;

pub use json_lines::{read, Kind, Sink};
pub use texts::{write, Piece, Valid};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// A column: its name, what it takes, and where its values go. `loose`: not 0 where it was declared in other letters.
/// `kept`: 0 where only its bits are wanted, and it has no room for values. `low` and `high`: of whole numbers (`high` is
/// one too many); `unit`: by what one is multiplied.
/// `valid`: a bit a row; `values`: 8 bytes a row (none of texts); `offsets`: one more than rows, and `text`, of texts.
#[repr(C)]
pub struct Column {
    name: *const u8,
    name_len: usize,
    kind: u32,
    loose: u32,
    kept: u32,
    low: i64,
    high: i64,
    unit: i64,
    valid: *mut u8,
    values: *mut u64,
    offsets: *mut i64,
    text: *mut u8,
    text_len: usize,
}

/// The source that this was built of (`native/build.py`).
#[no_mangle]
pub extern "C" fn braid_source() -> *const u8 {
    concat!(env!("BRAID_SOURCE"), "\0").as_ptr()
}

/// How many lines end in some bytes.
///
/// # Safety
/// `data` must be `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn braid_lines(data: *const u8, len: usize) -> usize {
    let ends = |part: &[u8]| part.iter().map(|&b| (b == b'\n') as u8).sum::<u8>() as usize;
    from_raw_parts(data, len).chunks(192).map(ends).sum()
}

/// Lines of JSON objects as columns. `rows`: how many lines there are. `sure`: of each whether it was read (1), is blank
/// (2), or must be read by another (0); `ends`: where it ends. Gives the number of lines, -1 where something is wrong.
///
/// # Safety
/// The pointers must be what `Column` says, for `rows` rows.
#[no_mangle]
pub unsafe extern "C" fn braid_json_lines(
    data: *const u8, len: usize, columns: *const Column, count: usize, rows: usize, sure: *mut u8, ends: *mut u64,
) -> i64 {
    let run = || {
        let data = from_raw_parts(data, len);
        let mut sinks = Vec::with_capacity(count);
        for c in from_raw_parts(columns, count) {
            let kind = Kind::of(c.kind)?;
            let kept = c.kept != 0;
            let (has_values, has_text) = (kept && !kind.is_text(), kept && kind.is_text());
            sinks.push(Sink {
                name: from_raw_parts(c.name, c.name_len),
                kind,
                loose: c.loose != 0,
                kept,
                low: c.low,
                high: c.high,
                unit: c.unit,
                valid: from_raw_parts_mut(c.valid, (rows + 7) / 8),
                values: if has_values { from_raw_parts_mut(c.values, rows) } else { &mut [] },
                offsets: if has_text { from_raw_parts_mut(c.offsets, rows + 1) } else { &mut [] },
                text: if has_text { from_raw_parts_mut(c.text, c.text_len) } else { &mut [] },
                used: 0,
            });
        }
        read(data, &mut sinks, from_raw_parts_mut(sure, rows), from_raw_parts_mut(ends, rows))
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Some(lines)) => lines as i64,
        _ => -1,
    }
}

/// A piece of rows of text. `kind`: 0, a literal (`data`, `len`); 1, whole numbers (`values`); 2, texts (`data`, `len`,
/// `values` for their offsets); 3, texts as JSON strings. `rows`: how many there are; `valid`: a bit a row from bit
/// `first_bit` on, or null.
#[repr(C)]
pub struct RowPiece {
    kind: u32,
    data: *const u8,
    len: usize,
    values: *const i64,
    valid: *const u8,
    first_bit: usize,
}

/// The texts of rows `first` to `first + count - 1` of `rows`, where their pieces stand, one behind the other; `ends`:
/// where each ends. Gives the bytes that were written, -1 where something is wrong.
///
/// # Safety
/// The pointers must be what `RowPiece` says, for `rows` rows; `ends` has room for `count`.
#[no_mangle]
pub unsafe extern "C" fn braid_texts(
    pieces: *const RowPiece, size: usize, rows: usize, first: usize, count: usize, out: *mut u8, len: usize,
    ends: *mut i64,
) -> i64 {
    let run = || {
        let mut made = Vec::with_capacity(size);
        for p in from_raw_parts(pieces, size) {
            let bits = (p.first_bit + rows + 7) / 8;
            let valid = || Valid {
                bits: if p.valid.is_null() { &[] } else { from_raw_parts(p.valid, bits) },
                first: p.first_bit,
            };
            made.push(match p.kind {
                0 => Piece::Literal(from_raw_parts(p.data, p.len)),
                1 => Piece::Whole { values: from_raw_parts(p.values, rows), valid: valid() },
                2 | 3 => Piece::Text {
                    text: from_raw_parts(p.data, p.len),
                    offsets: from_raw_parts(p.values, rows + 1),
                    valid: valid(),
                    quoted: p.kind == 3,
                },
                _ => return None,
            });
        }
        write(&made, first, from_raw_parts_mut(out, len), from_raw_parts_mut(ends, count))
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Some(used)) => used as i64,
        _ => -1,
    }
}
