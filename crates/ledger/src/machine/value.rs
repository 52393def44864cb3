//! What stands in rows.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::coded::{self, Coded};
use super::limits::{ARGUMENTS, KEY_BYTES, SYMBOL_BYTES, TEXT_BYTES};

/// A value. Integers come before symbols, symbols before texts; among themselves each kind has its usual order, by
/// characters' numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A word that stands for something.
    Symbol(Symbol),
    /// Any text.
    Text(Text),
}

/// A letter and then letters, digits and `_`, all of ASCII.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Symbol(String);

/// A text of limited length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

/// Why something is no value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadValue {
    /// It is no symbol.
    #[error("a symbol is a letter and then letters, digits and `_`, at most {SYMBOL_BYTES}")]
    Symbol,
    /// A text is too long.
    #[error("a text has at most {TEXT_BYTES} bytes, and this one has {0}")]
    Text(usize),
    /// A key is empty or too long.
    #[error("a key has 1 to {KEY_BYTES} bytes, and this one has {0}")]
    Key(usize),
    /// A fact has too many arguments.
    #[error("a fact has at most {ARGUMENTS} arguments, and this one has {0}")]
    Arguments(usize),
}

impl Symbol {
    /// This word.
    pub fn new(word: impl Into<String>) -> Result<Self, BadValue> {
        let word = word.into();
        let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = word.starts_with(|first: char| first.is_ascii_alphabetic());
        if is_plain && begins && word.len() <= SYMBOL_BYTES { Ok(Self(word)) } else { Err(BadValue::Symbol) }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text {
    /// This text.
    pub fn new(text: impl Into<String>) -> Result<Self, BadValue> {
        let text = text.into();
        if text.len() <= TEXT_BYTES { Ok(Self(text)) } else { Err(BadValue::Text(text.len())) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value {
    /// This symbol.
    pub fn symbol(word: impl Into<String>) -> Result<Self, BadValue> {
        Symbol::new(word).map(Self::Symbol)
    }

    /// This text.
    pub fn text(text: impl Into<String>) -> Result<Self, BadValue> {
        Text::new(text).map(Self::Text)
    }

    /// How many bytes it counts for.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Integer(_) => size_of::<i64>(),
            Self::Symbol(Symbol(text)) | Self::Text(Text(text)) => text.len(),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// Checked when it comes from outside, and sent as what it is.
macro_rules! sent_as_text {
    ($kind:ident) => {
        impl TryFrom<String> for $kind {
            type Error = BadValue;

            fn try_from(text: String) -> Result<Self, BadValue> {
                Self::new(text)
            }
        }

        impl From<$kind> for String {
            fn from(sent: $kind) -> Self {
                sent.0
            }
        }
    };
}
pub(super) use sent_as_text;

sent_as_text!(Symbol);
sent_as_text!(Text);

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// In quotes, on one line.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for sign in self.0.chars() {
            match sign {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                sign if sign.is_control() => write!(f, "\\u{{{:x}}}", u32::from(sign))?,
                sign => f.write_char(sign)?,
            }
        }
        f.write_char('"')
    }
}

/// As goals have it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Symbol(symbol) => symbol.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Coded for Symbol {
    fn encode(&self, into: &mut Vec<u8>) {
        coded::put_text(&self.0, into);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Self::new(coded::take_text(from)?).ok()
    }
}

impl Coded for Value {
    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Integer(number) => {
                into.push(0);
                into.extend(number.to_le_bytes());
            }
            Self::Symbol(symbol) => {
                into.push(1);
                symbol.encode(into);
            }
            Self::Text(Text(text)) => {
                into.push(2);
                coded::put_text(text, into);
            }
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let [kind] = coded::take(from)?;
        match kind {
            0 => Some(Self::Integer(i64::from_le_bytes(coded::take(from)?))),
            1 => Symbol::decode(from).map(Self::Symbol),
            2 => Text::new(coded::take_text(from)?).ok().map(Self::Text),
            _ => None,
        }
    }
}
