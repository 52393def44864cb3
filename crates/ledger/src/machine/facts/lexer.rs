//! Splits the text of a goal into tokens.

use std::ops::Range;

use holdoff_policy::Problems;
use holdoff_policy::file::Problem;

use crate::machine::{Symbol, Text};

/// A token of the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Word(Symbol),
    Variable(Symbol),
    /// A number without its sign.
    Number(u64),
    Text(Text),
    Sign(&'static str),
    End,
}

/// Longer signs come first, so that `<=` is not read as `<`.
const SIGNS: [&str; 17] =
    ["=>", "!=", "<=", ">=", "(", ")", ",", ":", "+", "-", "*", "/", "%", "=", "<", ">", "_"];

/// Returns a problem in the text of a goal.
pub(super) fn problem(text: &str, span: &Range<usize>, message: String, expected: &str) -> Problems {
    let mut problem = Problem::at(text, span, message);
    problem.expected(expected);
    Problems::from(problem).in_file("goal")
}

/// Returns all tokens with their byte ranges, and the end token.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, Problems> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let start = text.len() - rest.len();
        let (token, length) = next(text, start, rest)?;
        let is_last = token == Token::End;
        tokens.push((token, start..start + length));
        if is_last {
            return Ok(tokens);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// Returns the first token and its length in bytes.
fn next(text: &str, start: usize, rest: &str) -> Result<(Token, usize), Problems> {
    let Some(first) = rest.chars().next() else { return Ok((Token::End, 0)) };
    let bad = |length: usize, message: String, expected: &str| {
        Err(problem(text, &(start..start + length), message, expected))
    };
    match first {
        '?' | 'a'..='z' | 'A'..='Z' => {
            let word = run(rest.strip_prefix('?').unwrap_or(rest), is_of_a_word);
            let length = word.len() + usize::from(first == '?');
            match Symbol::new(word) {
                Ok(name) if first == '?' => Ok((Token::Variable(name), length)),
                Ok(word) => Ok((Token::Word(word), length)),
                Err(why) => bad(
                    length.max(1),
                    format!("`{}` is not a name", cut(rest, length)),
                    &format!("a name: {why}"),
                ),
            }
        }
        '0'..='9' => {
            let digits = run(rest, is_of_a_word);
            let Ok(number) = digits.parse() else {
                let message = format!("`{}` is not an integer", cut(digits, digits.len()));
                return bad(digits.len(), message, "an integer of 64 bits, such as 42");
            };
            Ok((Token::Number(number), digits.len()))
        }
        '"' => quoted(text, start, rest),
        _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            Some(sign) => Ok((Token::Sign(sign), sign.len())),
            None => {
                bad(first.len_utf8(), format!("unexpected character {first:?}"), "a fact, a value or a sign")
            }
        },
    }
}

fn quoted(text: &str, start: usize, rest: &str) -> Result<(Token, usize), Problems> {
    const ESCAPES: &str = "one of \\\", \\\\, \\n, \\t and \\u{…} with a character's number";
    let mut content = String::new();
    let mut signs = rest.char_indices().skip(1);
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => {
                let length = at + 1;
                let span = start..start + length;
                return match Text::new(content) {
                    Ok(content) => Ok((Token::Text(content), length)),
                    Err(why) => {
                        Err(problem(text, &span, "this text is too long".to_owned(), &why.to_string()))
                    }
                };
            }
            '\\' => {
                let Some(sign) = escaped(&mut signs) else {
                    let span = start + at..start + at + 1;
                    return Err(problem(text, &span, "invalid escape sequence".to_owned(), ESCAPES));
                };
                content.push(sign);
            }
            sign => content.push(sign),
        }
    }
    Err(problem(text, &(start..start + 1), "unterminated text".to_owned(), "a `\"` at its end"))
}

/// Returns the character that an escape sequence stands for.
fn escaped(signs: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let mut next = || signs.next().map(|(_, sign)| sign);
    match next()? {
        sign @ ('"' | '\\') => Some(sign),
        'n' => Some('\n'),
        't' => Some('\t'),
        'u' if next()? == '{' => {
            let mut number = 0_u32;
            for _ in 0..7 {
                match next()? {
                    '}' => return char::from_u32(number),
                    digit => number = number.checked_mul(16)?.checked_add(digit.to_digit(16)?)?,
                }
            }
            None
        }
        _ => None,
    }
}

fn is_of_a_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// Returns the longest prefix of characters that satisfy the predicate.
fn run(text: &str, is_like_this: impl Fn(char) -> bool) -> &str {
    let end = text.find(|sign| !is_like_this(sign)).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

/// Shortens a word for a message.
fn cut(text: &str, length: usize) -> String {
    text.chars().take(length.clamp(1, 40)).collect()
}
