//! Tests that the hot statements do not read the whole table.

use sqlx::{AssertSqlSafe, Row};

use super::{Sqlite, claim, rescue};
use crate::store::Store;

async fn plan(statement: &str) -> String {
    let store = Sqlite::open("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    let explain = AssertSqlSafe(format!("explain query plan {statement}"));
    let rows = sqlx::query(explain).fetch_all(store.file.writer()).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn claims_and_rescues_go_by_the_index() {
    for statement in [claim::HEAD, claim::CLAIM, rescue::LOST] {
        let plan = plan(statement).await;
        assert!(
            plan.contains("USING COVERING INDEX holdoff_steps_due")
                || plan.contains("USING INDEX holdoff_steps_due"),
            "{plan}"
        );
        assert!(
            !plan.contains("SCAN s\n")
                && !plan.contains("SCAN c")
                && !plan.contains("TEMP B-TREE FOR ORDER BY\nSCAN"),
            "{plan}"
        );
    }
}
