//! Lines of JSON objects as columns.
//!
//! In: bytes; the declared columns. Out: their values, line by line, and which lines were read.
//! Rule: a line is read only where the Python reader gives the same for certain; all others are left to it: what is not
//! JSON, a value of another type, numbers that are long or out of range, a name in another case, one that stands twice,
//! deep nesting, odd escapes. Nothing of a line that is left stays in the columns.

use std::str::from_utf8;

const DEPTH: usize = 32;
const LONGEST: usize = 18; // digits of a whole number that fits in any case
const LONGEST_FLOAT: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Whole,
    Moment, // a whole number, or ISO text: microseconds
    Double,
    Boolean,
    Text,
    Json, // the text of any value, null too, letter for letter
}

impl Kind {
    pub fn of(n: u32) -> Option<Kind> {
        [Kind::Whole, Kind::Moment, Kind::Double, Kind::Boolean, Kind::Text, Kind::Json].get(n as usize).copied()
    }

    pub fn is_text(self) -> bool {
        matches!(self, Kind::Text | Kind::Json)
    }
}

/// Where the values of a column go, if they are `kept`; `used`: bytes of its text. `loose`: a line with another name that
/// is equal but for case is left.
pub struct Sink<'a> {
    pub name: &'a [u8],
    pub kind: Kind,
    pub loose: bool,
    pub kept: bool,
    pub low: i64,
    pub high: i64,
    pub unit: i64,
    pub valid: &'a mut [u8],
    pub values: &'a mut [u64],
    pub offsets: &'a mut [i64],
    pub text: &'a mut [u8],
    pub used: usize,
}

impl Sink<'_> {
    fn put(&mut self, row: usize, value: u64) {
        if self.kept {
            self.values[row] = value;
        }
        self.there(row);
    }

    fn put_text(&mut self, bytes: &[u8]) {
        self.text[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    fn there(&mut self, row: usize) {
        self.valid[row / 8] |= 1 << (row % 8);
    }

    fn has_text(&self) -> bool {
        self.kept && self.kind.is_text()
    }
}

/// The number of lines; None where there are not as many as `sure` has room for.
pub fn read(data: &[u8], sinks: &mut [Sink], sure: &mut [u8], ends: &mut [u64]) -> Option<usize> {
    let is_text = from_utf8(data).is_ok();
    let mut hints = Vec::new();
    let (mut start, mut row) = (0, 0);
    for s in sinks.iter_mut().filter(|s| s.has_text()) {
        s.offsets[0] = 0;
    }
    while start < data.len() {
        if row == sure.len() {
            return None;
        }
        let (how, size) = one(&data[start..], sinks, row, is_text, &mut hints);
        start = (start + size + 1).min(data.len());
        sure[row] = how;
        ends[row] = start as u64;
        for s in sinks.iter_mut().filter(|s| s.has_text()) {
            s.offsets[row + 1] = s.used as i64;
        }
        row += 1;
    }
    (row == sure.len()).then_some(row)
}

/// The first line: 1 where it was read, 2 where it is blank, 0 where it is left, with nothing of it in the columns; and
/// its bytes. No value goes on behind the end of a line, so that is found by reading it.
fn one(data: &[u8], sinks: &mut [Sink], row: usize, is_text: bool, hints: &mut Vec<usize>) -> (u8, usize) {
    if is_text {
        if let Some(size) = object(data, sinks, row, hints) {
            return (1, size);
        }
    }
    let size = data.iter().position(|&b| b == b'\n').unwrap_or(data.len());
    let line = &data[..size];
    if !is_text && from_utf8(line).is_ok() && object(line, sinks, row, hints).is_some() {
        return (1, size);
    }
    for s in sinks.iter_mut() {
        s.valid[row / 8] &= !(1 << (row % 8));
        if s.has_text() {
            s.used = s.offsets[row] as usize;
        }
    }
    let is_blank = line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c));
    (if is_blank { 2 } else { 0 }, size)
}

/// Reads an object that is all of the first line; gives the bytes of that. `hints`: which column the n-th member was
/// last.
fn object(data: &[u8], sinks: &mut [Sink], row: usize, hints: &mut Vec<usize>) -> Option<usize> {
    let mut at = Cursor { data, i: 0 };
    let (mut seen, mut odd, mut n) = (0u64, false, 0);
    at.blanks();
    at.expect(b'{')?;
    at.blanks();
    if at.peek() == Some(b'}') {
        at.i += 1;
    } else {
        loop {
            let name = at.plain()?;
            at.blanks();
            at.expect(b':')?;
            at.blanks();
            if n == hints.len() {
                hints.push(usize::MAX);
            }
            let hint = hints[n];
            let known = hint < sinks.len() && sinks[hint].name == name;
            let which = if known { Some(hint) } else { sinks.iter().position(|s| s.name == name) };
            match which {
                Some(i) => {
                    hints[n] = i;
                    if seen & (1 << i) != 0 {
                        return None;
                    }
                    seen |= 1 << i;
                    at.value(&mut sinks[i], row)?;
                }
                None => {
                    odd |= !name.is_ascii() || sinks.iter().any(|s| s.name.eq_ignore_ascii_case(name));
                    at.skip(DEPTH)?;
                }
            }
            n += 1;
            at.blanks();
            match at.next()? {
                b',' => at.blanks(),
                b'}' => break,
                _ => return None,
            }
        }
    }
    at.blanks();
    let unsure = |(i, s): (usize, &Sink)| (odd && s.loose) || (seen & (1 << i) == 0 && (odd || !s.name.is_ascii()));
    (matches!(at.peek(), None | Some(b'\n')) && !sinks.iter().enumerate().any(unsure)).then_some(at.i)
}

struct Cursor<'a> {
    data: &'a [u8],
    i: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.data.get(self.i).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let b = self.peek()?;
        self.i += 1;
        Some(b)
    }

    fn expect(&mut self, b: u8) -> Option<()> {
        (self.next()? == b).then_some(())
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.i += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.data[self.i..].starts_with(word).then(|| self.i += word.len())
    }

    /// A string without escapes, without its quotes.
    fn plain(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.i;
        self.i = special(self.data, start)?;
        let found = &self.data[start..self.i];
        self.expect(b'"')?;
        Some(found)
    }

    fn value(&mut self, s: &mut Sink, row: usize) -> Option<()> {
        if self.peek()? == b'n' && s.kind != Kind::Json {
            return self.word(b"null");
        }
        let value = match s.kind {
            Kind::Text => {
                if s.kept { self.text(s)? } else { self.skip_text()? }
                s.there(row);
                return Some(());
            }
            Kind::Json => {
                let start = self.i;
                self.skip(DEPTH)?;
                if s.kept {
                    s.put_text(&self.data[start..self.i]);
                }
                s.there(row);
                return Some(());
            }
            Kind::Boolean if self.peek()? == b't' => self.word(b"true").map(|_| 1)?,
            Kind::Boolean => self.word(b"false").map(|_| 0)?,
            Kind::Double => self.double()?.to_bits(),
            Kind::Moment if self.peek()? == b'"' => moment(self.plain()?)? as u64,
            Kind::Whole | Kind::Moment => {
                let n = self.whole()?;
                if n < s.low || n >= s.high {
                    return None;
                }
                n.checked_mul(s.unit)? as u64
            }
        };
        s.put(row, value);
        Some(())
    }

    fn whole(&mut self) -> Option<i64> {
        let negative = self.peek()? == b'-';
        self.i += negative as usize;
        let start = self.i;
        let mut n: i64 = 0;
        while let Some(b @ b'0'..=b'9') = self.peek() {
            if self.i - start == LONGEST {
                return None;
            }
            n = n * 10 + (b - b'0') as i64;
            self.i += 1;
        }
        let count = self.i - start;
        let zero = count > 0 && self.data[start] == b'0' && (count > 1 || negative);
        if count == 0 || zero || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        Some(if negative { -n } else { n })
    }

    fn double(&mut self) -> Option<f64> {
        let start = self.i;
        let is_whole = self.number()?;
        let text = &self.data[start..self.i];
        if is_whole && (text == b"-0" || text.len() > LONGEST) {
            return None; // a whole number is no float yet: -0 is 0
        }
        let value: f64 = from_utf8(text).ok()?.parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// Goes behind a number; whether it is a whole one.
    fn number(&mut self) -> Option<bool> {
        let start = self.i;
        if self.peek()? == b'-' {
            self.i += 1;
        }
        let leading = self.peek()?;
        let digits = self.digits()?;
        if leading == b'0' && digits > 1 {
            return None;
        }
        let mut is_whole = true;
        if self.peek() == Some(b'.') {
            self.i += 1;
            self.digits()?;
            is_whole = false;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.i += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.i += 1;
            }
            self.digits()?;
            is_whole = false;
        }
        (self.i - start <= LONGEST_FLOAT).then_some(is_whole)
    }

    fn digits(&mut self) -> Option<usize> {
        let start = self.i;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.i += 1;
        }
        (self.i > start).then(|| self.i - start)
    }

    /// A string, its escapes resolved.
    fn text(&mut self, s: &mut Sink) -> Option<()> {
        self.expect(b'"')?;
        loop {
            let start = self.i;
            self.i = special(self.data, start)?;
            s.put_text(&self.data[start..self.i]);
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => {
                    let c = self.escape()?;
                    s.put_text(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return None,
            }
        }
    }

    /// The character of an escape; none of what is half of a pair, or NUL.
    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut n = 0;
                for _ in 0..4 {
                    n = n * 16 + (self.next()? as char).to_digit(16)?;
                }
                return char::from_u32(n).filter(|&c| c != '\0');
            }
            _ => return None,
        })
    }

    /// Goes behind a value that nobody declared.
    fn skip(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_text(),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            open @ (b'{' | b'[') => {
                let close = open + 2; // in ASCII
                self.i += 1;
                self.blanks();
                if depth == 0 {
                    return None;
                }
                if self.peek()? == close {
                    self.i += 1;
                    return Some(());
                }
                loop {
                    if open == b'{' {
                        self.skip_text()?;
                        self.blanks();
                        self.expect(b':')?;
                        self.blanks();
                    }
                    self.skip(depth - 1)?;
                    self.blanks();
                    match self.next()? {
                        b',' => self.blanks(),
                        b if b == close => return Some(()),
                        _ => return None,
                    }
                }
            }
            _ => self.number().map(|_| ()),
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            self.i = special(self.data, self.i)?;
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape().map(|_| ())?,
                _ => return None,
            }
        }
    }
}

/// Where the next quote, backslash or control character stands.
fn special(data: &[u8], start: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut i = start;
    while let Some(eight) = data.get(i..i + 8) {
        let w = u64::from_le_bytes(eight.try_into().ok()?);
        let (q, b) = (w ^ (ONES * b'"' as u64), w ^ (ONES * b'\\' as u64));
        let zero = |x: u64| x.wrapping_sub(ONES) & !x;
        let found = (zero(q) | zero(b) | (w.wrapping_sub(ONES * 0x20) & !w)) & HIGHS;
        if found != 0 {
            return Some(i + (found.trailing_zeros() / 8) as usize); // the lowest that is found is right
        }
        i += 8;
    }
    data[i.min(data.len())..].iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).map(|n| i + n)
}

/// Microseconds since 1970 of `yyyy-MM-dd HH:mm:ss` or `…T…`, with three digits of a second or none, and a Z or none.
fn moment(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    if text.len() != 19 && (text.len() != 23 || text[19] != b'.') {
        return None;
    }
    let marks = text[4] == b'-' && text[7] == b'-' && text[13] == b':' && text[16] == b':';
    if !marks || !matches!(text[10], b' ' | b'T') {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0i64, |n, b| b.is_ascii_digit().then(|| n * 10 + (b - b'0') as i64))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let milli = if text.len() == 23 { number(20, 23)? } else { 0 };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + leap as i64,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1000 || day < 1 || day > days || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) }; // years from March on
    let date = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some((((date * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + milli * 1000)
}
