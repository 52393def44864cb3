//! The rule for names: no character that a terminal, a log or a page does not show as itself.

/// Returns whether a character is a control character, or one that reorders, breaks or hides the text around it.
///
/// Names of tasks, locks, namespaces, holders, members and API tokens contain none of these characters, and the command
/// line escapes them in all other text. The joiners U+200C and U+200D are printable: scripts and emoji need them.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidi_characters_are_unprintable() {
        let unprintable = "\0\u{7}\t\n\r\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
            \u{2060}\u{2066}\u{2069}\u{feff}";
        for character in unprintable.chars() {
            assert!(is_unprintable(character), "{character:?}");
        }
        for character in "aZ0 ~-_/.:ß\u{a0}א\u{200c}\u{200d}…日👩".chars() {
            assert!(!is_unprintable(character), "{character:?}");
        }
    }
}
