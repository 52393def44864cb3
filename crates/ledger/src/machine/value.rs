//! The values in rows.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use holdoff_policy::is_unprintable;
use serde::{Deserialize, Serialize};

use super::codec::{self, Codec};
use super::limits::{ARGUMENTS, KEY_BYTES, SYMBOL_BYTES, TEXT_BYTES};

/// A value. Integers come before symbols, and symbols before texts. Within a kind, integers are ordered numerically,
/// and symbols and texts by code points.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Value {
    /// A 64-bit signed integer.
    Integer(i64),
    /// A symbol: a plain word.
    Symbol(Symbol),
    /// A text of any characters.
    Text(Text),
}

/// A letter followed by letters, digits and `_`, all ASCII.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Symbol(String);

/// A text of limited length. Copies share it: the goal, the changes, the history and the state hold it once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(Arc<str>);

/// The reason why an input is not a valid value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadValue {
    /// The word is not a valid symbol.
    #[error("a symbol is a letter followed by letters, digits and `_`, at most {SYMBOL_BYTES}")]
    Symbol,
    /// The text is too long.
    #[error("a text has at most {TEXT_BYTES} bytes, and this one has {0}")]
    Text(usize),
    /// The key is empty or too long.
    #[error("a key has 1 to {KEY_BYTES} bytes, and this one has {0}")]
    Key(usize),
    /// The key contains a control or bidi character.
    #[error("a key has no control or bidi characters, and this one contains {0:?}")]
    Unprintable(char),
    /// The fact has too many arguments.
    #[error("a fact has at most {ARGUMENTS} arguments, and this one has {0}")]
    Arguments(usize),
}

impl Symbol {
    /// Creates a symbol, or returns an error if the word is not valid.
    pub fn new(word: impl Into<String>) -> Result<Self, BadValue> {
        let word = word.into();
        let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = word.starts_with(|first: char| first.is_ascii_alphabetic());
        if is_plain && begins && word.len() <= SYMBOL_BYTES { Ok(Self(word)) } else { Err(BadValue::Symbol) }
    }

    /// Returns the word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text {
    /// Creates a text, or returns an error if it is too long.
    pub fn new(text: impl Into<String>) -> Result<Self, BadValue> {
        let text = text.into();
        if text.len() <= TEXT_BYTES { Ok(Self(text.into())) } else { Err(BadValue::Text(text.len())) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value {
    /// Creates a symbol value.
    pub fn symbol(word: impl Into<String>) -> Result<Self, BadValue> {
        Symbol::new(word).map(Self::Symbol)
    }

    /// Creates a text value.
    pub fn text(text: impl Into<String>) -> Result<Self, BadValue> {
        Text::new(text).map(Self::Text)
    }

    /// Returns the size that counts towards the limits, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Integer(_) => size_of::<i64>(),
            Self::Symbol(Symbol(text)) => text.len(),
            Self::Text(Text(text)) => text.len(),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// Implements conversions for a type that is serialized as text and validated when it is deserialized.
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
                String::from(&*sent.0)
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

/// Formats the text in quotes, on one line.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for sign in self.0.chars() {
            match sign {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                sign if is_unprintable(sign) => write!(f, "\\u{{{:x}}}", u32::from(sign))?,
                sign => f.write_char(sign)?,
            }
        }
        f.write_char('"')
    }
}

/// Formats the value in the syntax of goals.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Symbol(symbol) => symbol.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Codec for Symbol {
    fn encode(&self, into: &mut Vec<u8>) {
        codec::put_text(&self.0, into);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Self::new(codec::take_text(from)?).ok()
    }
}

impl Codec for Value {
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
                codec::put_text(text, into);
            }
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let [kind] = codec::take(from)?;
        match kind {
            0 => Some(Self::Integer(i64::from_le_bytes(codec::take(from)?))),
            1 => Symbol::decode(from).map(Self::Symbol),
            2 => Text::new(codec::take_text(from)?).ok().map(Self::Text),
            _ => None,
        }
    }
}
