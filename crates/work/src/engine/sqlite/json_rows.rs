//! Batches as JSON, for `json_each`: an array of rows, each an array of values. Bytes are written in hexadecimal.

use std::fmt::Write;

use crate::StepId;

/// Writes rows as JSON.
pub(super) struct JsonRows {
    text: String,
    /// Whether the current row has a value.
    is_begun: bool,
}

impl JsonRows {
    pub(super) fn new() -> Self {
        Self { text: String::from("["), is_begun: false }
    }

    /// Begins a row with the step's key.
    pub(super) fn step(&mut self, step: StepId) -> &mut Self {
        self.row().bytes(Some(step.task.as_uuid().as_bytes())).number(i64::from(step.number))
    }

    pub(super) fn row(&mut self) -> &mut Self {
        if self.text.len() > 1 {
            self.text.push_str("],");
        }
        self.text.push('[');
        self.is_begun = false;
        self
    }

    fn comma(&mut self) {
        if self.is_begun {
            self.text.push(',');
        }
        self.is_begun = true;
    }

    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.comma();
        let _ = write!(self.text, "{number}");
        self
    }

    pub(super) fn optional(&mut self, number: Option<i64>) -> &mut Self {
        match number {
            Some(number) => self.number(number),
            None => self.text(None),
        }
    }

    pub(super) fn text(&mut self, text: Option<&str>) -> &mut Self {
        self.comma();
        match text.map(serde_json::to_string) {
            Some(Ok(text)) => self.text.push_str(&text),
            _ => self.text.push_str("null"),
        }
        self
    }

    pub(super) fn bytes(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.comma();
        let Some(bytes) = bytes else {
            self.text.push_str("null");
            return self;
        };
        self.text.push('"');
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                self.text.push(DIGITS.get(usize::from(digit)).copied().map_or('0', char::from));
            }
        }
        self.text.push('"');
        self
    }

    pub(super) fn finish(mut self) -> String {
        if self.text.len() > 1 {
            self.text.push(']');
        }
        self.text.push(']');
        self.text
    }
}

/// Returns rows that consist only of step keys.
pub(super) fn step_keys<'a>(steps: impl IntoIterator<Item = &'a StepId>) -> String {
    let mut rows = JsonRows::new();
    for step in steps {
        rows.step(*step);
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;

    #[test]
    fn rows_are_json() {
        assert_eq!(JsonRows::new().finish(), "[]");
        let step = TaskId::from_uuid(uuid::Uuid::nil()).step(3);
        let mut rows = JsonRows::new();
        rows.step(step).text(Some("a\"b")).optional(None).bytes(Some(&[0xab, 1]));
        rows.step(step).text(None).number(-5).bytes(None);
        let nil = "0".repeat(32);
        let expected = format!("[[\"{nil}\",3,\"a\\\"b\",null,\"ab01\"],[\"{nil}\",3,null,-5,null]]");
        assert_eq!(rows.finish(), expected);
    }
}
