//! The border: what Python calls by ctypes. All memory is the caller's, laid out as Arrow's, and nothing is kept.
//! Only this file is `unsafe`: it makes slices of the pointers and calls `json_lines`, which checks every index. A panic
//! ends here, too: the caller then takes the Python path.

mod json_lines;

pub use json_lines::{read, Kind, Sink};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// A column: its name, what it takes, and where its values go. `kept`: 0 where only its bits are wanted, and it has no
/// room for values. `low` and `high`: of whole numbers (`high` is one too many); `unit`: by what one is multiplied.
/// `valid`: a bit a row; `values`: 8 bytes a row (none of texts); `offsets`: one more than rows, and `text`, of texts.
#[repr(C)]
pub struct Column {
    name: *const u8,
    name_len: usize,
    kind: u32,
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
            let (has_values, has_text) = (kept && kind != Kind::Text, kept && kind == Kind::Text);
            sinks.push(Sink {
                name: from_raw_parts(c.name, c.name_len),
                kind,
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
