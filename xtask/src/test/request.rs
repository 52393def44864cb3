//! The command line of `cargo xtask test`.

use super::catalogue::Depth;

pub(crate) const USAGE: &str = "\
usage: cargo xtask test [--deep] [NAME...]
       cargo xtask test --repeat N NAME...

  NAME        runs only the tests whose names contain one of these, such as 'holdoff-policy it laws' or conformance::claims;
              a test's name is the crate, the binary (lib, bin, it) and its path in it
  --deep      also runs all other tests: all seeds, long chaos, every page at every width, fuzzing, schemathesis,
              rustdoc, combinations of features
  --repeat N  runs each of the tests N times, while other processes keep every core busy
";

/// The arguments of `cargo xtask test`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(super) depth: Depth,
    /// Only tests whose names contain one of these; all tests if there are none.
    pub(super) names: Vec<String>,
    /// The number of runs of each test, on busy cores.
    pub(super) repeat: Option<u32>,
}

impl Request {
    /// Reads the arguments behind `cargo xtask test`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut request = Self { depth: Depth::Quick, names: Vec::new(), repeat: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                "--deep" => request.depth = Depth::Deep,
                "--repeat" => {
                    let times = rest.next().ok_or("--repeat needs a number and the name of a test")?;
                    request.repeat = match times.parse() {
                        Ok(times @ 1..) => Some(times),
                        _ => return Err(format!("--repeat takes a number from 1 on, not {times:?}")),
                    };
                }
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; the options are --deep and --repeat N"));
                }
                name => request.names.push(name.to_owned()),
            }
        }
        if request.repeat.is_some() && request.names.is_empty() {
            return Err("--repeat needs the name of a test".to_owned());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn options_and_names_come_in_any_order() {
        let quick = Request { depth: Depth::Quick, names: Vec::new(), repeat: None };
        assert_eq!(Request::parse(&[]), Ok(quick));
        let some = Request { depth: Depth::Deep, names: names(&["laws", "chaos"]), repeat: None };
        assert_eq!(Request::parse(&["laws", "--deep", "chaos"]), Ok(some));
        let again = Request { depth: Depth::Quick, names: names(&["laws"]), repeat: Some(3) };
        assert_eq!(Request::parse(&["--repeat", "3", "laws"]), Ok(again));
    }

    #[test]
    fn an_invalid_argument_is_reported() {
        for (arguments, expected) in [
            (&["--dep"][..], "unknown option --dep"),
            (&["--repeat"], "needs a number"),
            (&["--repeat", "0", "laws"], "not \"0\""),
            (&["--repeat", "laws"], "not \"laws\""),
            (&["--repeat", "2"], "needs the name of a test"),
        ] {
            let why = Request::parse(arguments).unwrap_err();
            assert!(why.contains(expected), "{arguments:?}: {why}");
        }
    }
}
