//! A cursor over JSON bytes that finds members and steps over everything else.
//!
//! Values that nobody asks for are not decoded: their brackets are counted and their strings
//! jumped over. The bytes come from our own serialiser, so what is stepped over is trusted to be
//! JSON; no input makes the cursor panic or run past the end.

use std::borrow::Cow;

use super::HeaderError;

/// How deep values may nest, as in `serde_json`.
const DEPTH: usize = 128;

/// A place in JSON text.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, position: 0 }
    }

    /// How many bytes lie behind.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Steps over white space and says what comes next.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.position) {
            self.position += 1;
        }
        self.bytes.get(self.position).copied()
    }

    /// Steps over `token` if it comes next.
    pub(super) fn take(&mut self, token: u8) -> bool {
        let found = self.peek() == Some(token);
        self.position += usize::from(found);
        found
    }

    /// Steps over `token`, which must come next.
    pub(super) fn expect(&mut self, token: u8) -> Result<(), HeaderError> {
        if self.take(token) { Ok(()) } else { Err(self.malformed()) }
    }

    /// Visits the members of the object that comes next: `visit` gets each name and must step over
    /// its value.
    pub(super) fn members(
        &mut self,
        mut visit: impl FnMut(&str, &mut Self) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            self.peek();
            visit(&name, self)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// Visits the elements of the array that comes next; `visit` must step over each.
    pub(super) fn elements(
        &mut self,
        mut visit: impl FnMut(&mut Self) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            visit(self)?;
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// The string that comes next.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, HeaderError> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        let start = self.position;
        let escaped = self.skip_string()?;
        let quoted = &self.bytes[start..self.position];
        if escaped {
            serde_json::from_slice::<String>(quoted).map(Cow::Owned).map_err(|_| self.malformed())
        } else {
            let inner = &quoted[1..quoted.len() - 1];
            std::str::from_utf8(inner).map(Cow::Borrowed).map_err(|_| self.malformed())
        }
    }

    /// The string that comes next, or nothing when another value does, which is stepped over.
    pub(super) fn string_or_skip(&mut self) -> Result<Option<Cow<'a, str>>, HeaderError> {
        if self.peek() == Some(b'"') { self.string().map(Some) } else { self.skip().map(|()| None) }
    }

    /// The raw text of the number or word that comes next, or nothing when another value does.
    pub(super) fn scalar_or_skip(&mut self) -> Result<Option<&'a [u8]>, HeaderError> {
        match self.peek() {
            Some(b'"' | b'{' | b'[') => self.skip().map(|()| None),
            _ => {
                let start = self.position;
                self.skip_scalar()?;
                Ok(Some(&self.bytes[start..self.position]))
            }
        }
    }

    /// Steps over the value that comes next, whatever it is.
    pub(super) fn skip(&mut self) -> Result<(), HeaderError> {
        let mut open = [0_u8; DEPTH];
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(opening @ (b'{' | b'[')) => {
                    let slot = open.get_mut(depth).ok_or(HeaderError::TooDeep)?;
                    *slot = if opening == b'{' { b'}' } else { b']' };
                    depth += 1;
                    self.position += 1;
                }
                Some(closing @ (b'}' | b']')) if depth > 0 && open[depth - 1] == closing => {
                    depth -= 1;
                    self.position += 1;
                }
                Some(b',' | b':') if depth > 0 => self.position += 1,
                Some(b'"') => {
                    self.skip_string()?;
                }
                _ => self.skip_scalar()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Steps over a string and says whether it holds escapes.
    fn skip_string(&mut self) -> Result<bool, HeaderError> {
        let mut escaped = false;
        let mut at = self.position + 1;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at += 2;
                }
                Some(_) => at += 1,
                None => return Err(self.malformed()),
            }
        }
        self.position = at + 1;
        Ok(escaped)
    }

    /// Steps over a number, `true`, `false` or `null`.
    fn skip_scalar(&mut self) -> Result<(), HeaderError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')))
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.malformed());
        }
        self.position += length;
        Ok(())
    }

    fn malformed(&self) -> HeaderError {
        HeaderError::Malformed { position: self.position }
    }
}
