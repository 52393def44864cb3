//! The promises of this engine beyond those of all engines, on a table in memory that can fail.

mod chaos;
mod faults;
mod promises;
pub(crate) mod world;

use std::time::Duration;

use holdoff_policy::Policy;
use uuid::Uuid;

use crate::store::{Answer, Bid, Held, LeaseStore};
use crate::{Key, Nonce, Owner, Token};

const LEASE: Duration = Duration::from_secs(10);

fn key(name: &str) -> Key {
    Key::new("default", name).unwrap()
}

fn nonce(number: u128) -> Nonce {
    Nonce::new(Uuid::from_u128(number))
}

fn bid(number: u128) -> Bid {
    let owner = Owner { nonce: nonce(number), name: format!("owner {number}") };
    Bid { key: key("a"), owner, lease: LEASE, waits: None }
}

fn waiting(number: u128) -> Bid {
    Bid { waits: Some(LEASE), ..bid(number) }
}

async fn granted(store: &impl LeaseStore, bid: &Bid) -> Token {
    match store.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => token,
        Answer::Held(held) => panic!("not granted: {held:?}"),
    }
}

async fn held(store: &impl LeaseStore, bid: &Bid) -> Held {
    match store.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => panic!("granted with {token}"),
        Answer::Held(held) => held,
    }
}

#[test]
fn the_policy_is_valid() {
    assert_eq!(
        (super::policy().cap(), super::policy().attempts()),
        (super::STEP * super::TRIES, Policy::UNLIMITED)
    );
}
