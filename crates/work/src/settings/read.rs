//! Reads the settings from `holdoff.toml`.

use holdoff_policy::Problems;
use holdoff_policy::file::{self, DeTable, Reader};

use super::{Settings, credentials, http, signals, work};

impl Settings {
    /// Reads the sections of `holdoff.toml` that configure durable work. Absent keys have the values of
    /// [`Settings::default`]. If there is any problem, nothing is read and all problems are reported.
    ///
    /// The policies are ignored here; [`PolicySet::from_toml`](holdoff_policy::PolicySet::from_toml) checks them and
    /// the names of the sections.
    ///
    /// ```
    /// use holdoff_work::Settings;
    /// use std::time::Duration;
    ///
    /// let settings = Settings::from_toml("[work]\nlease = \"5m\"\nmax_payload = \"1MiB\"")?;
    /// assert_eq!(settings.lease, Duration::from_secs(300));
    /// assert_eq!(settings.max_payload, 1_048_576);
    ///
    /// let problems = Settings::from_toml("[work]\nlese = \"5m\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `lease`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Settings {
    let mut settings = Settings::default();
    if let Some(value) = document.get("credentials") {
        (settings.http.credentials, settings.http.credential_hosts) = credentials::read(reader, value);
    }
    if let Some(table) = reader.table_in(document, "work") {
        let names = document.get("credentials").and_then(|value| value.get_ref().as_table());
        work::read(reader, table, names, &mut settings);
    }
    if let Some(table) = reader.table_in(document, "http") {
        http::read(reader, table, &mut settings.http);
    }
    if let Some(table) = reader.table_in(document, "signals") {
        signals::read(reader, table, &mut settings.signals);
    }
    settings
}
