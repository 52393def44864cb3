//! The files in `deploy/`, checked as far as possible without the tools that use them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::process::Process;

/// The daemons of each cluster.
const THREE: [&str; 3] = ["holdoff-1", "holdoff-2", "holdoff-3"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn kubernetes(kind: &str) -> Value {
    yaml("kubernetes/holdoff.yaml").into_iter().find(|object| object["kind"] == kind).expect(kind)
}

/// Returns a daemon of the cluster with a ledger.
fn with_a_ledger(name: &str) -> Value {
    yaml("compose-ledger.yaml").remove(0)["services"][name].take()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Returns the daemon's command line in each deployment.
fn command_lines() -> Vec<(&'static str, Vec<String>)> {
    let unit = text("systemd/holdoff.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/holdoff ")).unwrap();
    let docker = text("Dockerfile");
    let image = docker.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let compose = yaml("compose.yaml").remove(0);
    let container = kubernetes("Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    vec![
        ("systemd/holdoff.service", start.split_whitespace().map(str::to_owned).collect()),
        ("Dockerfile", serde_json::from_str(image).unwrap()),
        ("compose.yaml", words(&compose["services"]["holdoff-1"]["command"])),
        ("compose-ledger.yaml", words(&with_a_ledger("holdoff-1")["command"])),
        ("kubernetes/holdoff.yaml", words(&container["args"])),
    ]
}

fn lint(file: &Path) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_holdoff")).args(["policy", "lint"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_manifest_is_valid() {
    assert!(yaml("kubernetes/holdoff.yaml").iter().all(|object| object["metadata"]["name"] == "holdoff"));
    assert!(!yaml("kubernetes/lock-rbac.yaml").is_empty());
    assert_eq!((yaml("compose.yaml").len(), yaml("compose-ledger.yaml").len()), (1, 1));
    let unit = text("systemd/holdoff.service");
    for setting in [
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "StateDirectory=holdoff",
        "LimitCORE=0",
    ] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
    assert!(unit.contains("\nMemoryMax="));
}

#[test]
fn pods_are_confined() {
    let deployment = kubernetes("Deployment");
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    assert_eq!(
        image.split_once("@sha256:").map(|(_, digest)| digest.len()),
        Some(64),
        "{image} is not a digest"
    );
    let policy = &kubernetes("NetworkPolicy")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], deployment["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(words(&policy["policyTypes"]), ["Ingress", "Egress"]);
    assert_eq!(policy["egress"][0]["to"][0]["ipBlock"]["except"][0], "169.254.0.0/16");
    for file in ["compose.yaml", "compose-ledger.yaml"] {
        let daemon = yaml(file).remove(0)["services"]["holdoff-1"].take();
        assert_eq!(
            (&daemon["ulimits"]["core"], &daemon["mem_limit"]),
            (&Value::from(0), &Value::from("512m")),
            "{file}"
        );
    }
}

/// Only the account that prunes may delete Leases.
#[test]
fn a_lock_account_deletes_nothing() {
    let objects = yaml("kubernetes/lock-rbac.yaml");
    let of = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    let deletes = |role: &Value| {
        let role = of("Role").into_iter().find(|object| object["metadata"]["name"] == role["name"]).unwrap();
        role["rules"]
            .as_array()
            .unwrap()
            .iter()
            .any(|rule| words(&rule["verbs"]).contains(&"delete".to_owned()))
    };
    let (mut bound, mut deleting) = (BTreeSet::new(), BTreeSet::new());
    for binding in of("RoleBinding") {
        let names =
            binding["subjects"].as_array().unwrap().iter().map(|subject| subject["name"].as_str().unwrap());
        bound.extend(names.clone());
        deleting.extend(names.filter(|_| deletes(&binding["roleRef"])));
    }
    assert_eq!(deleting, BTreeSet::from(["holdoff-lock-prune"]));
    let accounts: BTreeSet<_> =
        of("ServiceAccount").iter().map(|account| account["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(accounts, bound);
}

/// Writes a certificate for localhost and its key to this folder, and returns the certificate.
fn certificate(folder: &Path) -> reqwest::Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = |kind: &str, bytes: &[u8]| {
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(bytes))
    };
    let cert = pem("CERTIFICATE", made.cert.der());
    std::fs::write(folder.join("tls.crt"), &cert).unwrap();
    std::fs::write(folder.join("tls.key"), pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    reqwest::Certificate::from_pem(cert.as_bytes()).unwrap()
}

/// Starts the daemon with the arguments and variables of every deployment. Only paths and ports are replaced.
#[tokio::test]
async fn every_deployment_starts() {
    let mut lines = Vec::new();
    let ledger_environment = with_a_ledger("holdoff-1")["environment"].take();
    for (file, line) in command_lines() {
        let variables = match file {
            "compose-ledger.yaml" => ledger_environment
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
            "compose.yaml" | "kubernetes/holdoff.yaml" => {
                vec![(
                    "HOLDOFF_STORE".to_owned(),
                    holdoff_testbed::Postgres::shared().create_database("deploy"),
                )]
            }
            _ => Vec::<(String, String)>::new(),
        };
        lines.push((file, line, variables));
    }
    // The certificate and its key may come from different layers.
    let (_, line, variables) = lines.last().unwrap().clone();
    for moved in [&["--tls-cert", "--tls-key"][..], &["--tls-key"]] {
        let (mut line, mut variables) = (line.clone(), variables.clone());
        for flag in moved {
            let at = line.iter().position(|word| word == flag).unwrap();
            let variable =
                format!("HOLDOFF_{}", flag.trim_start_matches("--").replace('-', "_").to_uppercase());
            variables.push((variable, line.drain(at..at + 2).next_back().unwrap()));
        }
        lines.push(("kubernetes/holdoff.yaml with variables", line, variables));
    }
    for (file, line, variables) in lines {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().display().to_string();
        let trusted = certificate(folder.path());
        std::fs::copy(self::folder().join("holdoff.toml"), folder.path().join("holdoff.toml")).unwrap();
        let here = |text: &str| {
            ["/etc/holdoff-tls", "/etc/holdoff", "/var/lib/holdoff"]
                .iter()
                .fold(text.to_owned(), |text, path| text.replace(path, &home))
                .replace(":7070", ":0")
                .replace("0.0.0.0:4848", "127.0.0.1:0")
        };
        let holdoff = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
            command.args(arguments).current_dir(folder.path()).env("XDG_DATA_HOME", &home);
            command.envs(variables.iter().map(|(name, value)| (name, here(value))));
            command
        };
        let line: Vec<String> = line.iter().map(|word| here(word)).collect();
        let data = line
            .iter()
            .position(|word| word == "--data")
            .map(|at| line[at..at + 2].to_vec())
            .unwrap_or_default();
        // Without the variable of a pair whose other half is a flag of `serve`.
        let made = holdoff(&["token", "create", "--name", "me", "--scope", "admin"])
            .args(&data)
            .env_remove("HOLDOFF_TLS_KEY")
            .env_remove("HOLDOFF_TLS_CERT")
            .output()
            .unwrap();
        assert!(made.status.success(), "{file}: {}", String::from_utf8_lossy(&made.stderr));
        if file == "compose-ledger.yaml" {
            assert!(holdoff(&["ledger", "init"]).output().unwrap().status.success());
        }
        let mut command = holdoff(&["--json"]);
        command.args(&line);
        let listens = line.iter().any(|word| word == "--listen")
            || variables.iter().any(|(name, _)| name == "HOLDOFF_LISTEN");
        if !listens {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut process = Process::start(&mut command);
        let greeting = process.lines().next().unwrap_or_else(|| panic!("{file} does not start: {line:?}"));
        let greeting: Value = serde_json::from_str(&greeting).unwrap();
        let url = greeting["url"].as_str().unwrap().replace("0.0.0.0", "localhost");
        assert_eq!(url.starts_with("https://"), file.starts_with("kubernetes"), "{file}: {url}");
        let client = reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap();
        for path in ["/healthz", "/readyz"] {
            assert_eq!(
                client.get(format!("{url}{path}")).send().await.unwrap().status(),
                200,
                "{file} {path}"
            );
        }
        let is_open = client.get(format!("{url}/v1/tasks")).send().await.unwrap().status() == 200;
        assert_eq!(is_open, !listens, "{file}: a deployment that other machines reach requires API tokens");
    }
}

#[test]
fn all_deployments_use_the_same_port_and_probes() {
    let deployment = kubernetes("Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 7070);
    for (probe, path) in
        [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"]);
    }
    assert_eq!(kubernetes("Service")["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    assert_eq!(
        kubernetes("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["spec"]["template"]["metadata"]["labels"]
    );
    for (file, line) in command_lines() {
        let listen = line.iter().position(|word| word == "--listen").map(|at| line[at + 1].as_str());
        assert!(listen.is_none_or(|address| address.ends_with(":7070")), "{file}: {listen:?}");
    }
    assert!(text("Dockerfile").contains("EXPOSE 7070"));
    for file in ["compose.yaml", "compose-ledger.yaml"] {
        let compose = yaml(file).remove(0);
        let port = |name: &&str| compose["services"][name]["ports"][0].as_str().unwrap().to_owned();
        let ports: BTreeSet<String> = THREE.iter().map(port).collect();
        let is_hidden = |port: &String| port.starts_with("127.0.0.1:") && port.ends_with(":7070");
        assert!(ports.len() == 3 && ports.iter().all(is_hidden), "{file}: {ports:?}");
    }
}

/// A daemon reads the environment of the deployment: it finds its directory and advertises its address.
#[test]
fn daemons_with_a_ledger_have_distinct_keys_and_addresses() {
    let home = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for name in THREE {
        let daemon = with_a_ledger(name);
        let environment_variable =
            |variable: &str| daemon["environment"][variable].as_str().unwrap().to_owned();
        assert_eq!(environment_variable("HOLDOFF_LISTEN"), "0.0.0.0:7070");
        assert_eq!(environment_variable("HOLDOFF_LEDGER_ADVERTISE"), format!("{name}:4848"));
        assert_eq!(daemon["volumes"][0], format!("{name}:{}", environment_variable("HOLDOFF_DATA")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        for (variable, value) in daemon["environment"].as_object().unwrap() {
            command.env(variable, value.as_str().unwrap());
        }
        // Replaces the volume by a directory on this machine.
        let data = home.path().join(name);
        command.env("HOLDOFF_DATA", &data).current_dir(home.path()).args(["--json", "ledger"]);
        match keys.first() {
            None => command.arg("init"),
            Some(first) => command.args(["join", "--member", &format!("{first}@holdoff-1:4848")]),
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["data"], data.join("ledger").to_str().unwrap());
        if !keys.is_empty() {
            assert_eq!(answer["address"], format!("{name}:4848"));
        }
        keys.push(answer["key"].as_str().unwrap().to_owned());
    }
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 3);
}

/// The command prints its help only if it accepts all arguments before `--help`.
#[test]
fn every_deployment_uses_known_flags() {
    for (file, line) in command_lines() {
        let asked = Command::new(env!("CARGO_BIN_EXE_holdoff")).args(&line).arg("--help").output().unwrap();
        assert!(asked.status.success(), "{file}: {}", String::from_utf8_lossy(&asked.stderr));
    }
}

#[test]
fn referenced_files_exist() {
    let compose = yaml("compose.yaml").remove(0);
    let daemon = &compose["services"]["holdoff-1"];
    assert!(folder().join("..").join(daemon["build"]["dockerfile"].as_str().unwrap()).exists());
    let mounted = daemon["volumes"][0].as_str().unwrap().split(':').next().unwrap();
    lint(&folder().join(mounted));

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubernetes("ConfigMap")["data"]["holdoff.toml"].as_str().unwrap()).unwrap();
    lint(file.path());
    let deployment = kubernetes("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    for word in words(&pod["containers"][0]["args"]).iter().filter(|word| word.starts_with("/etc/")) {
        let is_mounted =
            |mount: &Value| word.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap()));
        assert!(mounts.iter().any(is_mounted), "{word} is not mounted");
    }
}

#[test]
fn the_grafana_dashboard_is_valid() {
    let dashboard: Value = serde_json::from_str(&text("grafana/holdoff.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let rows = panels.iter().filter(|panel| panel["type"] == "row").count();
    assert!(rows >= 6, "{rows} rows");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(
            !targets.is_empty() && targets.iter().all(|target| !target["expr"].as_str().unwrap().is_empty())
        );
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{}", panel["title"]);
    }
}

/// Debian has `promtool` in the package `prometheus`; `cargo xtask test` installs it.
#[test]
fn promtool_accepts_the_alerts() {
    for arguments in
        [["check", "rules", "prometheus/alerts.yml"], ["test", "rules", "prometheus/alerts.test.yml"]]
    {
        let output = Command::new("promtool").args(arguments).current_dir(folder()).output();
        let output = output.unwrap_or_else(|error| panic!("promtool is needed: {error}"));
        let printed = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
    }
}
