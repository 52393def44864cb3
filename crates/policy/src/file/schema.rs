//! The JSON schema of the policy file.
//!
//! No code reads a file into these types: [`super::reader`] does that, with better messages. The types only
//! describe the file, and a test compares their keys with those of the reader. There is one file and one
//! schema: this module also describes the sections that `holdoff-work`, `holdoff-lock` and other crates read,
//! and tests in those crates compare the keys with their readers.

#![expect(dead_code, reason = "the fields are read by the derive only")]

mod sections;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use schemars::JsonSchema;

/// Returns the JSON schema of `holdoff.toml`, for editors and other languages.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

/// Returns the keys of one definition of the schema, or the keys at the top if the name is empty. Tests
/// compare them with the keys that a reader accepts.
pub fn schema_keys(definition: &str) -> BTreeSet<&'static str> {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(schema);
    let table = match definition {
        "" => Some(&*SCHEMA),
        name => SCHEMA.get("$defs").and_then(|definitions| definitions.get(name)),
    };
    let keys = table.and_then(|table| table.get("properties")?.as_object());
    keys.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect()
}

/// holdoff.toml: named policies, the policy of each operation, and the settings of durable work and locks.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct File {
    /// The policy of every operation without its own policy. Without it: `standard`.
    default: Option<String>,
    /// Named policies. A policy may have a preset's name.
    policies: Option<BTreeMap<String, PolicyTable>>,
    /// Operations by exact name, or by a pattern in which `*` stands for any run of characters.
    operations: Option<BTreeMap<String, OperationValue>>,
    /// The overrides of single namespaces.
    namespaces: Option<BTreeMap<String, Namespace>>,
    /// The failure classes of codes, where they differ from the built-in table.
    classes: Option<Classes>,
    /// Settings of durable work.
    work: Option<work::WorkTable>,
    /// HTTP steps: steps that send an HTTP request.
    http: Option<work::HttpTable>,
    /// The sources of the API tokens that requests carry, by name.
    credentials: Option<BTreeMap<String, work::CredentialTable>>,
    /// Signals (deduplicated alerts) and the gateway that accepts them.
    signals: Option<work::SignalsTable>,
    /// The defaults of locks. An acquisition may override them.
    lock: Option<sections::LockTable>,
    /// The daemon: its address, store, logs, shutdown and authentication.
    server: Option<sections::ServerTable>,
    /// An acceptor of councils in the daemon.
    acceptor: Option<sections::AcceptorTable>,
    /// Ledgers in the daemon.
    ledger: Option<sections::LedgerTable>,
}

/// The delays between attempts and their number.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PolicyTable {
    /// The policy or preset that this policy extends.
    extends: Option<String>,
    /// The growth of the ceiling from attempt to attempt. Default: exponential.
    growth: Option<GrowthWord>,
    /// The first ceiling, for exponential, linear and fibonacci growth.
    base: Option<DurationText>,
    /// The factor of each further attempt, for exponential growth. Default: 2.
    #[schemars(range(min = 1, max = 1000))]
    factor: Option<f64>,
    /// The largest exponent, for exponential growth.
    max_exponent: Option<u32>,
    /// The increment of each further attempt, for linear growth. Default: base.
    step: Option<DurationText>,
    /// The ceiling, for constant growth.
    delay: Option<DurationText>,
    /// The ceilings, for growth by a list; the last ceiling repeats.
    #[schemars(length(min = 1, max = 1024))]
    delays: Option<Vec<DurationText>>,
    /// The upper limit of every delay. Default: 30s for policies that grow.
    cap: Option<DurationText>,
    /// The number of attempts, the first included. Default: 5.
    attempts: Option<Attempts>,
    /// The time limit of the whole operation.
    deadline: Option<DurationText>,
    /// The conversion of a ceiling into a window. Default: full.
    jitter: Option<JitterValue>,
    /// The treatment of the server's Retry-After.
    retry_after: Option<RetryAfterTable>,
    /// The spread of attempts if the number of contenders is known.
    contention: Option<ContentionTable>,
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
    /// The number of attempts.
    Count(#[schemars(range(min = 1))] u32),
    /// No limit.
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
    /// A jitter without a parameter.
    Word(JitterWord),
    /// A jitter with a parameter.
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
    /// Around the ceiling, by this share of it to either side.
    Proportional(#[schemars(range(min = 0, max = 1))] f64),
    /// Between these two shares of the ceiling.
    Scaled([f64; 2]),
    /// From the ceiling upwards, by this share of it.
    Additive(#[schemars(range(min = 0, max = 999))] f64),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RetryAfterTable {
    /// The spread of callers that all received the same value. Default: 0s.
    spread: Option<DurationText>,
    /// The longest value that the policy honours in full. Default: 1d.
    limit: Option<DurationText>,
    /// The behaviour beyond the limit. Default: `give_up`.
    beyond: Option<BeyondWord>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum BeyondWord {
    /// Wait for the full value.
    Wait,
    /// Do not retry.
    GiveUp,
    /// Wait for the limit only, and retry earlier than the server asked.
    Clip,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ContentionTable {
    /// The time slot of each contender. Required unless it is inherited.
    slot: Option<DurationText>,
    /// The longest spread. Default: 60s.
    limit: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OperationValue {
    /// The name of the policy.
    Policy(String),
    /// The policy and further properties of the operation.
    Table(OperationTable),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OperationTable {
    /// The name of the policy.
    policy: String,
    /// The caller's timeout; the lint compares the policy with it.
    timeout: Option<DurationText>,
    /// The lease that the caller holds while it retries; the lint compares the policy with it.
    lease: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Namespace {
    /// The policy of this namespace's operations without their own policy.
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
    /// By kind of I/O error.
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
    use super::super::{TOP, operations, policies, values};
    use super::*;

    #[test]
    fn the_schema_knows_exactly_the_readers_keys() {
        for (definition, known) in [
            ("", TOP),
            ("PolicyTable", policies::KEYS),
            ("RetryAfterTable", values::RETRY_AFTER_KEYS),
            ("ContentionTable", values::CONTENTION_KEYS),
            ("OperationTable", operations::OPERATION_KEYS),
            ("Namespace", operations::NAMESPACE_KEYS),
            ("Classes", operations::CLASS_KINDS),
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
