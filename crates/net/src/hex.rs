//! Bytes as hexadecimal text: two lower-case digits a byte, so that each value has exactly one spelling.

use std::fmt;

/// The reason why a text is not the hexadecimal form of the expected number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HexError {
    /// The text has this many characters.
    Length(usize),
    /// This character, at this position counted from 1, is not a lower-case hexadecimal digit.
    Digit(char, usize),
}

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "it has {length} characters"),
            Self::Digit(digit @ 'A'..='F', at) => {
                write!(f, "{digit:?} at position {at} must be lower case")
            }
            Self::Digit(other, at) => write!(f, "{other:?} at position {at} is not one of 0-9 and a-f"),
        }
    }
}

pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

pub(crate) fn read<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    // An invalid character is the more useful report, also in a text of the wrong length.
    if let Some((at, other)) = text.chars().enumerate().find(|(_, c)| !matches!(c, '0'..='9' | 'a'..='f')) {
        return Err(HexError::Digit(other, at + 1));
    }
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return Err(HexError::Length(text.len()));
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | nibble(*digit));
    }
    Ok(bytes)
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}
