//! Many contenders for one lock, while transactions are lost, delayed and repeated, and holders vanish. The lock is
//! never granted while another holder may consider it valid, and tokens only grow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::shared_table::{Fault, SharedTable};
use super::{key, nonce};
use crate::engine::ledger::LedgerStore;
use crate::store::{AcquireOutcome, AcquireRequest, LeaseStore as _};
use crate::{Owner, Token, clock};
use fastrand::Rng;
use holdoff_testbed::Seeds;

const CONTENDERS: u64 = 5;
const TURNS: u32 = 25;
const LEASE: Duration = Duration::from_secs(3);

/// The holder that may consider its lock valid.
#[derive(Default)]
struct HolderBelief {
    token: Option<Token>,
    until: Duration,
    grants: u32,
    vanished: u32,
    expired: u32,
}

#[test]
fn a_lock_is_not_granted_while_another_holder_may_consider_it_valid() {
    let seeds = Seeds::new(8, 8);
    let (mut vanished, mut expired, mut grants) = (0, 0, 0);
    for seed in seeds.clone() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(contend(seed)));
        let belief = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            let command = "cargo test -p holdoff-lock --all-features --lib ledger::tests::chaos";
            eprintln!("{}", Seeds::replay(seed, command));
            std::panic::resume_unwind(panic)
        });
        (vanished, expired) = (vanished + belief.vanished, expired + belief.expired);
        grants += belief.grants;
    }
    println!("{grants} grants, {vanished} holders vanished, {expired} leases ran out");
    assert!(
        seeds.count() < 8 || (vanished > 20 && expired > 20),
        "too few holders vanished or too few leases expired"
    );
}

async fn contend(seed: u64) -> HolderBelief {
    let (shared, mut rng) = (SharedTable::default(), Rng::with_seed(seed));
    let belief = Arc::new(Mutex::new(HolderBelief::default()));
    let mut contenders = tokio::task::JoinSet::new();
    for number in 0..CONTENDERS {
        let (shared, rng, belief) = (shared.clone(), rng.fork(), Arc::clone(&belief));
        contenders.spawn(async move { take_turns(number, shared, rng, &belief).await });
    }
    let table = shared.clone();
    let injecting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(rng.u64(1..600))).await;
            let faults =
                [Fault::LoseResponse, Fault::LoseRequest, Fault::Hang, Fault::Delay, Fault::NoQuorum];
            // One fault at a time: otherwise no transaction would ever succeed.
            if table.faults_left() == 0 {
                table.inject_fault(faults[rng.usize(0..faults.len())]);
            }
            if rng.u32(0..3) == 0 {
                table.arrive();
            }
        }
    });
    while let Some(ended) = contenders.join_next().await {
        ended.unwrap();
    }
    injecting.abort();
    let belief = std::mem::take(&mut *belief.lock().unwrap());
    assert_eq!(
        belief.grants,
        u32::try_from(CONTENDERS).unwrap() * TURNS,
        "a contender was not granted the lock in each of its turns"
    );
    belief
}

async fn take_turns(number: u64, shared: SharedTable, mut rng: Rng, belief: &Mutex<HolderBelief>) {
    let client = shared.client();
    let mut store = client.open();
    for turn in 0..TURNS {
        let owner =
            Owner { nonce: nonce(u128::from(number * 1000) + u128::from(turn) + 1), name: String::new() };
        let request = AcquireRequest { key: key("a"), owner, lease: LEASE, waits_for: Some(LEASE / 4) };
        let (token, sent) = acquire(&store, &request, &mut rng).await;
        record_grant(belief, token, sent);
        if rng.u32(0..4) == 0 {
            client.fall_behind();
        }
        match rng.u32(0..6) {
            // The process vanishes with all its state.
            0 => {
                belief.lock().unwrap().vanished += 1;
                store = client.open();
            }
            1 => {
                tokio::time::sleep(LEASE / 2).await;
                let sent = clock::now();
                let renewing = store.renew(&request.key, request.owner.nonce, token, LEASE);
                if let Ok(Ok(true)) = tokio::time::timeout(LEASE / 4, renewing).await {
                    record_renewal(belief, token, sent);
                }
                release(&store, &request, token, belief).await;
            }
            _ => {
                tokio::time::sleep(Duration::from_millis(rng.u64(0..200))).await;
                release(&store, &request, token, belief).await;
            }
        }
    }
}

/// Asks repeatedly. At random it gives up, withdraws, and asks again as a new contender.
async fn acquire(store: &LedgerStore, request: &AcquireRequest, rng: &mut Rng) -> (Token, Duration) {
    loop {
        let sent = clock::now();
        let asking = tokio::time::timeout(Duration::from_secs(1), store.try_acquire(request)).await;
        if let Ok(Ok(AcquireOutcome::Granted(token))) = asking {
            return (token, sent);
        }
        if rng.u32(0..5) == 0 {
            let withdrawing = store.withdraw(&request.key, request.owner.nonce);
            if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), withdrawing).await {
                let found = tokio::time::timeout(
                    Duration::from_secs(1),
                    store.granted(&request.key, request.owner.nonce),
                );
                assert!(!matches!(found.await, Ok(Ok(Some(_)))), "a withdrawn request was granted");
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(1..150))).await;
    }
}

fn record_grant(belief: &Mutex<HolderBelief>, token: Token, sent: Duration) {
    let mut belief = belief.lock().unwrap();
    let now = clock::now();
    if let Some(before) = belief.token {
        assert!(token > before, "{token} after {before}");
    }
    assert!(now >= belief.until, "granted {:?} too early", belief.until.saturating_sub(now));
    belief.expired += u32::from(belief.token.is_some() && belief.until > Duration::ZERO);
    (belief.token, belief.until) = (Some(token), sent + LEASE);
    belief.grants += 1;
}

fn record_renewal(belief: &Mutex<HolderBelief>, token: Token, sent: Duration) {
    let mut belief = belief.lock().unwrap();
    assert_eq!(belief.token, Some(token), "another contender holds the lock");
    belief.until = belief.until.max(sent + LEASE);
}

/// Stops considering the lock valid before it releases it. A lock that is not released expires.
async fn release(store: &LedgerStore, request: &AcquireRequest, token: Token, belief: &Mutex<HolderBelief>) {
    {
        let mut belief = belief.lock().unwrap();
        if belief.token == Some(token) {
            belief.until = Duration::ZERO;
        }
    }
    let releasing = store.release(&request.key, request.owner.nonce, token);
    _ = tokio::time::timeout(Duration::from_secs(1), releasing).await;
}
