//! `GET /v1/policies/{name}`: the explanation of a policy.

use axum::Json;
use axum::extract::{Path, State};
use holdoff_policy::{Explanation, nearest};
use serde::Serialize;
use utoipa::ToSchema;

use super::set::ShownPolicy;
use crate::app::App;
use crate::problem::{Kind, Problem};

/// A policy, and what it comes to.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedPolicy)]
pub(super) struct Explained {
    name: String,
    policy: ShownPolicy,
    /// The waits, the first after the first try.
    waits: Vec<ShownWait>,
    /// Whether there are more, like the last one.
    more: bool,
    /// How many of its waits its deadline leaves time for.
    possible: u32,
    /// All waits together, if they end.
    total: Option<ShownTotal>,
}

/// A wait after a failed try, in microseconds: anywhere from low to high.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyWait)]
pub(super) struct ShownWait {
    /// The try that failed, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    low_us: u64,
    high_us: u64,
    mean_us: u64,
    /// All waits up to this one.
    total_low_us: u64,
    total_high_us: u64,
}

/// All waits together, in microseconds.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyTotal)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in names")]
pub(super) struct ShownTotal {
    low_us: u64,
    high_us: u64,
    mean_us: u64,
}

/// One policy, with the waits it comes to.
#[utoipa::path(get, path = "/v1/policies/{name}", tag = "policies", security(("token" = ["read"])),
    params(("name" = String, Path, description = "Its name, or a preset's.")),
    responses((status = 200, description = "The policy.", body = Explained)))]
pub(super) async fn policy(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<Explained>, Problem> {
    let set = app.work.policies();
    let Some(policy) = set.policy(&name) else { return Err(unknown(&app, &name)) };
    let Explanation { waits, more, total, possible } = policy.explain();
    Ok(Json(Explained {
        policy: ShownPolicy::new(&set, &name, policy)?,
        name,
        waits: waits
            .iter()
            .map(|wait| ShownWait {
                attempt: wait.attempt.get(),
                low_us: wait.window.low_us(),
                high_us: wait.window.high_us(),
                mean_us: wait.mean_us,
                total_low_us: wait.total_low_us,
                total_high_us: wait.total_high_us,
            })
            .collect(),
        more,
        possible,
        total: total.map(|total| ShownTotal {
            low_us: total.low_us,
            high_us: total.high_us,
            mean_us: total.mean_us,
        }),
    }))
}

pub(super) fn unknown(app: &App, name: &str) -> Problem {
    let set = app.work.policies();
    let names = set.policies().keys().map(String::as_str);
    let hint = nearest(name, names).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Problem::new(Kind::NoSuchPolicy, format!("there is no policy of this name{hint}"))
}
