//! One request, retried by the policy.

use holdoff_policy::{Class, ClassMap, Classify, Failure, Replay};
use holdoff_retry::retry_after;
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Error, ProblemDetails};

/// Returns whether a byte may appear in a path without escaping.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Escapes a name for a path.
pub(super) fn escaped(name: &str) -> String {
    let escape =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call::<T, ()>(Method::GET, path, None).await
    }

    pub(super) async fn post<T: DeserializeOwned, B: Serialize + Sync>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn call<T: DeserializeOwned, B: Serialize + Sync>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, Error> {
        let body =
            body.map(serde_json::to_vec).transpose().map_err(|why| Error::InvalidRequest(why.into()))?;
        let retried = self.shared.retry.run(|| self.once(method.clone(), path, body.clone())).await;
        let body = retried.map_err(|failed| failed.into_error().unwrap_or(Error::NoAttempt))?;
        serde_json::from_slice(&body).map_err(|why| Error::InvalidResponse(why.into()))
    }

    async fn once(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        let mut request = self.shared.http.request(method, format!("{}{path}", self.shared.address));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(Error::unreachable)?;
        let (status, wait) = (response.status(), retry_after(response.headers()));
        let text = read(response).await?;
        if status.is_success() {
            return Ok(text);
        }
        let problem =
            serde_json::from_slice(&text).unwrap_or_else(|_| ProblemDetails::of_status(status.as_u16()));
        Err(Error::Refused(Box::new(ProblemDetails {
            retry_after: wait,
            status: status.as_u16(),
            ..problem
        })))
    }
}

/// The size limit of a response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

async fn read(mut response: Response) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Error::unreachable)? {
        if text.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(Error::InvalidResponse(format!("longer than {MAX_RESPONSE_BYTES} bytes").into()));
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

/// Every call of this client may be repeated.
impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Unreachable { timed_out: true, .. } => Failure::new(Class::Timeout),
            Self::Unreachable { .. } => Failure::transient(),
            Self::Refused(problem) => {
                let class = classes.http(problem.status, Replay::Safe).unwrap_or(Class::Permanent);
                let failure = Failure::new(class);
                problem.retry_after.map_or(failure, |wait| failure.with_retry_after(wait))
            }
            _ => Failure::permanent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_escaped_in_a_path() {
        assert_eq!(escaped("a-b_c.9~"), "a-b_c.9~");
        assert_eq!(escaped("../x?y#ü"), "..%2Fx%3Fy%23%C3%BC");
    }
}
