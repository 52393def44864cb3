//! The JSON schema of the policy file.
//!
//! These types are never read from a file: [`super::reader`] does that, with better messages. They only
//! describe it, and a test holds their keys against the reader's. The file is one, and so is its schema: the
//! sections that `holdoff-work`, `holdoff-lock` and others read are described here too, and tests there hold them against their
//! readers.

#![expect(dead_code, reason = "the fields are read by the derive only")]

mod acceptor;
mod ledger;
mod lock;
mod server;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use schemars::JsonSchema;

/// The JSON schema of `holdoff.toml`, for editors and other languages.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

/// The keys that the schema knows in one of its definitions, or, without a name, at the top: what readers are held
/// against.
pub fn schema_keys(definition: &str) -> BTreeSet<&'static str> {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(schema);
    let table = match definition {
        "" => Some(&*SCHEMA),
        name => SCHEMA.get("$defs").and_then(|definitions| definitions.get(name)),
    };
    let keys = table.and_then(|table| table.get("properties")?.as_object());
    keys.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect()
}

/// holdoff.toml: named policies, which operation uses which, and how durable work and locks behave.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct File {
    /// The policy of every operation without one of its own. Without it: `standard`.
    default: Option<String>,
    /// Named policies. A policy may take a preset's name.
    policies: Option<BTreeMap<String, PolicyTable>>,
    /// Operations by exact name, or by a pattern in which `*` stands for any run of characters.
    operations: Option<BTreeMap<String, OperationValue>>,
    /// What differs in one namespace.
    namespaces: Option<BTreeMap<String, Namespace>>,
    /// Which code means which failure class, where it differs from the built-in table.
    classes: Option<Classes>,
    /// How durable work behaves.
    work: Option<work::WorkTable>,
    /// Steps that are HTTP requests.
    http: Option<work::HttpTable>,
    /// How to get the tokens that requests carry, by name.
    credentials: Option<BTreeMap<String, work::CredentialTable>>,
    /// Signals, and the gateway they come in by.
    signals: Option<work::SignalsTable>,
    /// What locks are like unless an acquisition says otherwise.
    lock: Option<lock::LockTable>,
    /// The daemon: where it listens, where work is kept, how it logs and ends; who may come in, and how.
    server: Option<server::ServerTable>,
    /// An acceptor of councils, in the daemon.
    acceptor: Option<acceptor::AcceptorTable>,
    /// Ledgers, in the daemon.
    ledger: Option<ledger::LedgerTable>,
}

/// When to try again, and how often.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PolicyTable {
    /// The policy or preset this one starts from.
    extends: Option<String>,
    /// How the ceiling grows from try to try. Default: exponential.
    growth: Option<GrowthWord>,
    /// The first ceiling, for exponential, linear and fibonacci growth.
    base: Option<DurationText>,
    /// What each further try multiplies by, for exponential growth. Default: 2.
    #[schemars(range(min = 1, max = 1000))]
    factor: Option<f64>,
    /// The largest exponent, for exponential growth.
    max_exponent: Option<u32>,
    /// What each further try adds, for linear growth. Default: base.
    step: Option<DurationText>,
    /// The ceiling, for constant growth.
    delay: Option<DurationText>,
    /// The ceilings, for growth by a list; the last one repeats.
    #[schemars(length(min = 1, max = 1024))]
    delays: Option<Vec<DurationText>>,
    /// No delay exceeds this. Default: 30s for what grows.
    cap: Option<DurationText>,
    /// How many tries there are, the first included. Default: 5.
    attempts: Option<Attempts>,
    /// The time the whole operation may take.
    deadline: Option<DurationText>,
    /// How a ceiling becomes a window. Default: full.
    jitter: Option<JitterValue>,
    /// What to make of the other side's Retry-After.
    retry_after: Option<RetryAfterTable>,
    /// How to spread when it is known how many contend.
    crowd: Option<CrowdTable>,
}

/// A duration, such as "250ms", "1.5s", "2m" or "1h 30m".
#[derive(JsonSchema)]
#[schemars(transparent)]
struct DurationText(String);

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum GrowthWord {
    Exponential,
    Linear,
    Fibonacci,
    Constant,
    List,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Attempts {
    /// The number of tries.
    Count(#[schemars(range(min = 1))] u32),
    /// As many as it takes.
    Word(UnlimitedWord),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum UnlimitedWord {
    Unlimited,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum JitterValue {
    /// A jitter without a number.
    Word(JitterWord),
    /// A jitter with a number.
    Table(JitterTable),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum JitterWord {
    /// Always the ceiling.
    None,
    /// From zero to the ceiling.
    Full,
    /// From half of the ceiling to the ceiling.
    Equal,
    /// From the base to three times the last delay.
    Decorrelated,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", deny_unknown_fields)]
enum JitterTable {
    /// Around the ceiling, by this share of it on either side.
    Proportional(#[schemars(range(min = 0, max = 1))] f64),
    /// Between these two shares of the ceiling.
    Scaled([f64; 2]),
    /// From the ceiling up, by this share of it.
    Additive(#[schemars(range(min = 0, max = 999))] f64),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RetryAfterTable {
    /// How far to spread callers who were all told the same. Default: 0s.
    spread: Option<DurationText>,
    /// The longest value that is simply obeyed. Default: 1d.
    limit: Option<DurationText>,
    /// What to do beyond the limit. Default: `give_up`.
    beyond: Option<BeyondWord>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum BeyondWord {
    /// Wait in full.
    Wait,
    /// Do not retry.
    GiveUp,
    /// Wait for the limit only. Impolite.
    Clip,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CrowdTable {
    /// The time each contender is given. Needed unless it is inherited.
    slot: Option<DurationText>,
    /// The longest spread. Default: 60s.
    limit: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OperationValue {
    /// The name of its policy.
    Policy(String),
    /// Its policy, and what else is known of it.
    Table(OperationTable),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OperationTable {
    /// The name of its policy.
    policy: String,
    /// How long its caller is willing to wait; the lint holds the policy against it.
    timeout: Option<DurationText>,
    /// The lease that is held while it retries; the lint holds the policy against it.
    lease: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Namespace {
    /// The policy of this namespace's operations without one of their own.
    default: Option<String>,
    /// This namespace's operations.
    operations: Option<BTreeMap<String, OperationValue>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Classes {
    /// By HTTP status.
    http: Option<BTreeMap<String, ClassWord>>,
    /// By gRPC code in capitals.
    grpc: Option<BTreeMap<String, ClassWord>>,
    /// By SQLSTATE, or its first two characters.
    sqlstate: Option<BTreeMap<String, ClassWord>>,
    /// By kind of io error.
    io: Option<BTreeMap<String, ClassWord>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum ClassWord {
    Transient,
    RateLimited,
    Unauthorized,
    Conflict,
    Contended,
    Superseded,
    Timeout,
    Permanent,
}

#[cfg(test)]
mod tests {
    use super::super::{TOP, classes, operations, policies, values};
    use super::*;

    #[test]
    fn the_schema_knows_exactly_the_readers_keys() {
        for (definition, known) in [
            ("", TOP),
            ("PolicyTable", policies::KEYS),
            ("RetryAfterTable", values::RETRY_AFTER_KEYS),
            ("CrowdTable", values::CROWD_KEYS),
            ("OperationTable", operations::OPERATION_KEYS),
            ("Namespace", operations::NAMESPACE_KEYS),
            ("Classes", classes::KINDS),
        ] {
            assert_eq!(schema_keys(definition), known.iter().copied().collect(), "{definition}");
        }
    }

    #[test]
    fn the_schema_knows_exactly_the_classes() {
        let words: Vec<_> = crate::Class::ALL.iter().map(|class| class.name().into()).collect();
        assert_eq!(schema()["$defs"]["ClassWord"]["enum"], serde_json::Value::Array(words));
    }
}
