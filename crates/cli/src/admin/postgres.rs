//! Runs Postgres' own programs, `pg_dump` and `pg_restore`, on the schema.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdoff_sql::BackupError;
use url::Url;

use crate::error::CommandError;

/// The directory in which Debian installs one directory per Postgres version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Dumps the schema into an open file. The dump leaves out the rows of unlogged tables: the server itself empties
/// them after a crash, so a restored store must not rely on them.
pub(super) fn dump(url: &str, into: &File) -> Result<(), CommandError> {
    let arguments =
        ["--format=custom", "--schema=holdoff", "--no-owner", "--no-privileges", "--no-unlogged-table-data"];
    let output = into.try_clone()?;
    run("pg_dump", url, &arguments, None, Stdio::from(output))
}

/// Checks that `pg_restore` on this machine can read the file and that it contains holdoff's schema.
pub(super) fn check(file: &Path) -> Result<(), CommandError> {
    let program = find("pg_restore")?;
    let output = Command::new(program).arg("--list").arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(|error| CommandError::Failed(format!("cannot run pg_restore: {error}")))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && listed.contains(" holdoff ") {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(CommandError::Failed(format!(
        "{} is not a Postgres backup of holdoff: {}",
        file.display(),
        message.trim()
    )))
}

/// Restores the schema in a single transaction.
pub(super) fn restore(url: &str, file: &Path) -> Result<(), CommandError> {
    let arguments = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"];
    run("pg_restore", url, &arguments, Some(file), Stdio::null())
}

fn run(
    name: &str,
    url: &str,
    arguments: &[&str],
    file: Option<&Path>,
    output: Stdio,
) -> Result<(), CommandError> {
    let environment = environment(url)?;
    let mut command = Command::new(find(name)?);
    command.args(arguments);
    if let Some(file) = file {
        let database = environment.iter().find(|(name, _)| *name == "PGDATABASE");
        command.arg("--dbname").arg(database.map(|(_, name)| name.as_str()).unwrap_or_default()).arg(file);
    }
    // Passes the credentials in the environment, because arguments appear in process listings.
    command.envs(environment).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.spawn().and_then(std::process::Child::wait_with_output);
    let ended = ended.map_err(|error| CommandError::Failed(format!("cannot run {name}: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    Err(CommandError::Failed(format!("{name} failed: {message}")))
}

/// Finds the program in `PATH` or in Debian's directories. There the highest version wins, because it reads the
/// backups of older versions.
fn find(name: &str) -> Result<PathBuf, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().filter_map(Result::ok);
    let version = |folder: PathBuf| Some((folder.file_name()?.to_str()?.parse::<u32>().ok()?, folder));
    let mut debian: Vec<_> = versions.filter_map(|entry| version(entry.path())).collect();
    debian.sort();
    let in_debian = debian.into_iter().rev().map(|(_, folder)| folder.join("bin").join(name));
    in_debian.chain(in_path).find(|program| program.is_file()).ok_or_else(|| {
        CommandError::Failed(format!(
            "{name} is not installed. Install Postgres' client programs (Debian: apt-get install postgresql-client), or run \
             these commands where they are installed:\n  pg_dump --format=custom --schema=holdoff --no-owner \
             --no-privileges --no-unlogged-table-data --file=FILE DATABASE\n  pg_restore --no-owner --no-privileges \
             --exit-on-error --single-transaction --dbname=DATABASE FILE"
        ))
    })
}

/// Translates the store URL into the environment variables that Postgres' programs read.
fn environment(url: &str) -> Result<Vec<(&'static str, String)>, CommandError> {
    let unreadable = |_| CommandError::Usage("invalid store URL".to_owned());
    let url = Url::parse(url).map_err(unreadable)?;
    let mut found = vec![
        ("PGHOST", url.host_str().map(decoded)),
        ("PGPORT", url.port().map(|port| port.to_string())),
        ("PGUSER", Some(decoded(url.username())).filter(|name| !name.is_empty())),
        ("PGPASSWORD", url.password().map(decoded)),
        ("PGDATABASE", Some(decoded(url.path().trim_start_matches('/'))).filter(|name| !name.is_empty())),
    ];
    for (key, value) in url.query_pairs() {
        let name = match &*key {
            "host" => "PGHOST",
            "hostaddr" => "PGHOSTADDR",
            "port" => "PGPORT",
            "dbname" => "PGDATABASE",
            "user" => "PGUSER",
            "password" => "PGPASSWORD",
            "sslmode" | "ssl-mode" => "PGSSLMODE",
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => "PGSSLROOTCERT",
            "sslcert" | "ssl-cert" => "PGSSLCERT",
            "sslkey" | "ssl-key" => "PGSSLKEY",
            "options" => "PGOPTIONS",
            "pool_mode" if value == "transaction" => {
                return Err(CommandError::Usage(BackupError::Pooled.to_string()));
            }
            _ => continue,
        };
        found.push((name, Some(value.into_owned())));
    }
    Ok(found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// Decodes percent-encoded bytes, such as `%41`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_url_becomes_environment_variables() {
        let found =
            environment("postgres://me:p%40ss@db:5433/work%20x?sslmode=require&statement-cache-capacity=9");
        let expected = [
            ("PGHOST", "db"),
            ("PGPORT", "5433"),
            ("PGUSER", "me"),
            ("PGPASSWORD", "p@ss"),
            ("PGDATABASE", "work x"),
            ("PGSSLMODE", "require"),
        ];
        assert_eq!(found.unwrap(), expected.map(|(name, value)| (name, value.to_owned())));
        let pooled = environment("postgres://db/work?pool_mode=transaction").unwrap_err().to_string();
        assert!(pooled.contains("use the address of the Postgres server itself"), "{pooled}");
    }
}
