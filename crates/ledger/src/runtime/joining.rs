//! Becoming a member: a node that knows only some members asks them which ledger it is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use holdoff_net::PublicKey;
use serde::{Deserialize, Serialize};

use super::Error;
use super::lines::Lines;
use super::roster::Member;
use super::store::About;
use super::waiting::Waiting;
use super::wire::{Reply, Request};

/// A member as people write it: `KEY@HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Contact {
    /// Who it is.
    pub key: PublicKey,
    /// Where it listens.
    pub address: String,
}

/// A text is no contact.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no member: write its key of 64 hexadecimal digits, `@`, and where it listens, as host:port"
)]
pub struct BadContact(String);

impl FromStr for Contact {
    type Err = BadContact;

    fn from_str(text: &str) -> Result<Self, BadContact> {
        let bad = || BadContact(text.to_owned());
        let (key, address) = text.split_once('@').ok_or_else(bad)?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        let key = key.parse().map_err(|_| bad())?;
        if has_port { Ok(Self { key, address: address.to_owned() }) } else { Err(bad()) }
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.address)
    }
}

/// What a new node has learned of its ledger.
pub(super) struct Learned {
    pub(super) about: About,
    pub(super) members: Vec<(PublicKey, Member)>,
}

/// Asks one contact after the other which ledger has this name, until one says so.
pub(super) async fn learn(namespace: &str, contacts: &[Contact], lines: &Lines) -> Learned {
    // Soon at first, then every few seconds, until somebody has admitted this node.
    let mut waiting = Waiting::between(Duration::from_millis(200), Duration::from_secs(2));
    loop {
        for contact in contacts {
            match ask(namespace, contact, lines).await {
                Ok(learned) => return learned,
                Err(error) => tracing::info!(
                    namespace, member = %contact.key, %error,
                    "a member does not say which ledger this is: has it admitted this node's key?"
                ),
            }
        }
        waiting.wait().await;
    }
}

async fn ask(namespace: &str, contact: &Contact, lines: &Lines) -> Result<Learned, Error> {
    let link = lines.link(&contact.key, &contact.address)?;
    match link.ask(&Request::Who(namespace.to_owned())).await? {
        Reply::Ledger { about, life, mut members } => {
            // Whoever answers is somebody, whatever its list says.
            let known = members.iter_mut().find(|(key, _)| *key == contact.key);
            match known {
                Some((_, member)) => member.life = Some(life),
                None => members.push((contact.key, contact.member(life))),
            }
            Ok(Learned { about, members })
        }
        Reply::NotDone(why) => Err(Error::NotNow(why)),
        other => Err(Error::Net(format!("a member has answered something else: {other:?}"))),
    }
}

impl Contact {
    fn member(&self, life: u64) -> Member {
        Member { name: String::new(), address: self.address.clone(), votes: false, life: Some(life) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_read_as_they_are_written() {
        let key = holdoff_net::Key::from_secret(&[7; 32]).public();
        let contact = Contact { key, address: "node-1.example:4848".to_owned() };
        assert_eq!(contact.to_string().parse(), Ok(contact));
        for wrong in ["", "@", "host:1", &format!("{key}@host"), &format!("{key}@:1"), "ff@host:1"] {
            assert!(wrong.parse::<Contact>().is_err(), "{wrong}");
        }
    }
}
