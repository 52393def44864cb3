//! The validation of a Lease.

use k8s_openapi::api::coordination::v1::Lease;

use super::status::Refusal;

const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
const MOST_ANNOTATIONS: usize = 256 * 1024;

pub(super) fn validate(name: &str, lease: &Lease) -> Result<(), Refusal> {
    let invalid = |why: &str| Err(Refusal::invalid(name, why));
    if !is_subdomain(name) {
        return invalid("metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of …");
    }
    for (key, value) in lease.metadata.labels.iter().flatten() {
        if !is_qualified(key) || !(value.is_empty() || is_label(value)) {
            return invalid(&format!("metadata.labels: Invalid value: {key}={value}"));
        }
    }
    let annotations = lease.metadata.annotations.iter().flatten();
    if !annotations.clone().all(|(key, _)| is_qualified(&key.to_lowercase())) {
        return invalid("metadata.annotations: Invalid value: a qualified name must consist of …");
    }
    if annotations.map(|(key, value)| key.len() + value.len()).sum::<usize>() > MOST_ANNOTATIONS {
        return invalid("metadata.annotations: Too long: may not be more than 262144 bytes");
    }
    let Some(spec) = &lease.spec else { return Ok(()) };
    if spec.lease_duration_seconds.is_some_and(|seconds| seconds <= 0) {
        return invalid("spec.leaseDurationSeconds: Invalid value: must be greater than 0");
    }
    if spec.lease_transitions.is_some_and(|transitions| transitions < 0) {
        return invalid("spec.leaseTransitions: Invalid value: must be greater than or equal to 0");
    }
    Ok(())
}

fn is_subdomain(name: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.first().is_some_and(inner)
            && bytes.last().is_some_and(inner)
            && bytes.iter().all(|byte| inner(byte) || *byte == b'-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_part)
}

/// Returns whether a key is valid: a name, optionally after a domain and a slash.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label(name),
        None => is_label(key),
    }
}

fn is_label(value: &str) -> bool {
    let outer = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = value.as_bytes();
    bytes.len() <= LONGEST_LABEL
        && bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
        && bytes.iter().all(|byte| outer(byte) || b"-_.".contains(byte))
}
