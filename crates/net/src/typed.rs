//! Typed values over links, encoded with postcard.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::{Error, Link, NotPushed, Peer};

/// Encodes a value.
pub fn encode(value: &impl Serialize) -> Result<Bytes, Error> {
    postcard::to_stdvec(value).map(Bytes::from).map_err(|why| Error::Unwritable(why.to_string()))
}

/// Decodes a value. The bytes must hold nothing else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let unreadable = |why: String| Error::Unreadable(why);
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(unreadable(format!("{} bytes too many", rest.len()))),
        Err(why) => Err(unreadable(why.to_string())),
    }
}

impl Link {
    /// [`Link::call`] with typed values.
    pub async fn ask<A: DeserializeOwned>(&self, question: &impl Serialize) -> Result<A, Error> {
        decode(&self.call(encode(question)?).await?)
    }

    /// [`Link::call_within`] with typed values.
    pub async fn ask_within<A: DeserializeOwned>(
        &self,
        limit: Duration,
        question: &impl Serialize,
    ) -> Result<A, Error> {
        decode(&self.call_within(limit, encode(question)?).await?)
    }

    /// [`Link::tell`] with a typed value.
    pub async fn tell_value(&self, message: &impl Serialize) -> Result<(), Error> {
        self.tell(encode(message)?).await
    }
}

impl Peer {
    /// [`Peer::push`] with a typed value.
    pub fn push_value(&self, message: &impl Serialize) -> Result<(), NotPushed> {
        self.push(&encode(message).map_err(|_| NotPushed::Unwritable)?)
    }
}
