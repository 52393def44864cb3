//! The problems that the parser reports for invalid texts.

use crate::machine::facts::Goal;

fn problem(text: &str) -> String {
    text.parse::<Goal>().map(|goal| goal.to_string()).unwrap_err().to_string()
}

#[test]
fn a_mistake_is_shown_with_its_place_and_what_was_expected() {
    let shown = "goal:2:4: `alice` does not belong here\n  |\n2 | => alice(1)\n  |    ^^^^^ \
                 expected an effect, such as `-balance(alice, ?a)` or `+balance(alice, 20)`";
    assert_eq!(problem("p(1)\n=> alice(1)"), shown);
}

#[test]
fn every_mistake_is_told_from_others() {
    for (text, said) in [
        ("", "goal:1:1: the goal ends here"),
        ("all:", "goal:1:5: the goal ends here"),
        ("p(1) =>", "goal:1:8: the goal ends here"),
        ("p(1), ", "goal:1:7: the goal ends here"),
        ("p(1", "expected `,` and another value, or `)`"),
        ("p(1) q(2)", "goal:1:6: `q` does not belong here"),
        ("?a > 1", "goal:1:1: nothing gives ?a a value before this"),
        ("not p(?a)", "in `not`, `_` matches anything"),
        ("p(?a + 1)", "goal:1:3: nothing gives ?a a value before this"),
        ("=> +p(_)", "goal:1:7: `_` has no value"),
        ("p(1) > 1", "goal:1:6: `>` does not belong here"),
        ("a b", "expected a comparison"),
        ("1 == 1", "goal:1:4: `=` does not belong here"),
        ("p(-a)", "write `0 - ?a`"),
        ("p(99999999999999999999)", "`99999999999999999999` is no integer"),
        ("p(9223372036854775808)", "does not fit 64 bits"),
        ("p(1x)", "`1x` is no integer"),
        ("p(\"a)", "goal:1:3: this text does not end"),
        ("p(\"\\q\")", "goal:1:4: this `\\` begins nothing"),
        ("p(\"\\u{d800}\")", "this `\\` begins nothing"),
        ("p(?)", "`?` is no name"),
        ("p(ä)", "goal:1:3: 'ä' means nothing here"),
        ("p; q", "goal:1:2: ';' means nothing here"),
    ] {
        assert!(problem(text).contains(said), "{text}:\n{}", problem(text));
    }
}

/// A goal is serialized as its printed text, which may be longer than the original text.
#[test]
fn a_goal_that_could_not_be_read_again_is_none() {
    let control = |count: usize| format!("p(\"{0}\", \"{0}\")", "\u{1}".repeat(count));
    let goal = control(6000).parse::<Goal>().unwrap();
    assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
    assert!(problem(&control(7000)).contains("the goal has 70009 bytes when it is printed"));
}

#[test]
fn what_would_be_too_much_is_refused() {
    let many = |one: &str, count: usize| vec![one; count].join(", ");
    for (most, over, said) in [
        (many("p()", 32), many("p()", 33), "there are more than 32 conditions"),
        (
            format!("=> {}", many("+p()", 64)),
            format!("=> {}", many("+p()", 65)),
            "there are more than 64 effects",
        ),
        (
            format!("p({})", many("1", 16)),
            format!("p({})", many("1", 17)),
            "there are more than 16 arguments",
        ),
        ("a".repeat(128) + "()", "a".repeat(129) + "()", "at most 128"),
        (
            format!("p(\"{}\")", "x".repeat(16384)),
            format!("p(\"{}\")", "x".repeat(16385)),
            "a text has at most 16384 bytes",
        ),
        (" ".repeat(65533) + "p()", " ".repeat(65534) + "p()", "expected at most 65536"),
    ] {
        assert!(most.parse::<Goal>().is_ok(), "{}", problem(&most));
        assert!(problem(&over).contains(said), "{}", problem(&over));
    }
    let variables = |count: usize| {
        let patterns: Vec<_> = (0..count).map(|n| format!("?v{n}")).collect();
        patterns.chunks(16).map(|terms| format!("p({})", terms.join(", "))).collect::<Vec<_>>().join(", ")
    };
    assert!(variables(64).parse::<Goal>().is_ok());
    assert!(problem(&variables(65)).contains("there are more than 64 variables"));
}
