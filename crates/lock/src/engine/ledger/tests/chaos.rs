//! Many contenders for one lock, while transactions are lost, delayed and repeated, and holders vanish. The lock is
//! never granted while another holder may consider it valid, and tokens only grow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::world::{Fault, World};
use super::{key, nonce};
use crate::engine::ledger::Ledger;
use crate::store::{Answer, Bid, LeaseStore as _};
use crate::{Owner, Token, clock};
use fastrand::Rng;

const CONTENDERS: u64 = 5;
const TURNS: u32 = 25;
const LEASE: Duration = Duration::from_secs(3);

/// The holder that may consider its lock valid.
#[derive(Default)]
struct Belief {
    token: Option<Token>,
    until: Duration,
    grants: u32,
    vanished: u32,
    expired: u32,
}

#[test]
fn nobody_is_granted_what_another_may_believe_to_have() {
    let asked = std::env::var("HOLDOFF_LEDGER_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = asked.map_or(0..8, |seed: u64| seed..seed + 1);
    let (mut vanished, mut expired, mut grants) = (0, 0, 0);
    for seed in seeds.clone() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(contend(seed)));
        let belief = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!(
                "HOLDOFF_LEDGER_SEED={seed} cargo test -p holdoff-lock --all-features --lib ledger::tests::chaos"
            );
            std::panic::resume_unwind(panic)
        });
        (vanished, expired) = (vanished + belief.vanished, expired + belief.expired);
        grants += belief.grants;
    }
    println!("{grants} grants, {vanished} holders vanished, {expired} leases ran out");
    assert!(asked.is_some() || (vanished > 20 && expired > 20), "this run shows nothing");
}

async fn contend(seed: u64) -> Belief {
    let (world, mut rng) = (World::default(), Rng::with_seed(seed));
    let belief = Arc::new(Mutex::new(Belief::default()));
    let mut contenders = tokio::task::JoinSet::new();
    for number in 0..CONTENDERS {
        let (world, rng, belief) = (world.clone(), rng.fork(), Arc::clone(&belief));
        contenders.spawn(async move { take_turns(number, world, rng, &belief).await });
    }
    let striking = world.clone();
    let strikes = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(rng.u64(1..600))).await;
            let faults = [Fault::LoseAnswer, Fault::LoseQuestion, Fault::Hang, Fault::Delay, Fault::NoQuorum];
            // One fault at a time: otherwise no transaction would ever succeed.
            if striking.faults_left() == 0 {
                striking.strike(faults[rng.usize(0..faults.len())]);
            }
            if rng.u32(0..3) == 0 {
                striking.arrive();
            }
        }
    });
    while let Some(ended) = contenders.join_next().await {
        ended.unwrap();
    }
    strikes.abort();
    let belief = std::mem::take(&mut *belief.lock().unwrap());
    assert_eq!(belief.grants, u32::try_from(CONTENDERS).unwrap() * TURNS, "somebody did not get its turn");
    belief
}

async fn take_turns(number: u64, world: World, mut rng: Rng, belief: &Mutex<Belief>) {
    let door = world.door();
    let mut store = door.open();
    for turn in 0..TURNS {
        let owner =
            Owner { nonce: nonce(u128::from(number * 1000) + u128::from(turn) + 1), name: String::new() };
        let bid = Bid { key: key("a"), owner, lease: LEASE, waits: Some(LEASE / 4) };
        let (token, sent) = acquire(&store, &bid, &mut rng).await;
        believe(belief, token, sent);
        if rng.u32(0..4) == 0 {
            door.fall_behind();
        }
        match rng.u32(0..6) {
            // The process vanishes with all its state.
            0 => {
                belief.lock().unwrap().vanished += 1;
                store = door.open();
            }
            1 => {
                tokio::time::sleep(LEASE / 2).await;
                let sent = clock::now();
                let renewing = store.renew(&bid.key, bid.owner.nonce, token, LEASE);
                if let Ok(Ok(true)) = tokio::time::timeout(LEASE / 4, renewing).await {
                    renewed(belief, token, sent);
                }
                let_go(&store, &bid, token, belief).await;
            }
            _ => {
                tokio::time::sleep(Duration::from_millis(rng.u64(0..200))).await;
                let_go(&store, &bid, token, belief).await;
            }
        }
    }
}

/// Asks repeatedly. At random it gives up, withdraws, and asks again as a new contender.
async fn acquire(store: &Ledger, bid: &Bid, rng: &mut Rng) -> (Token, Duration) {
    loop {
        let sent = clock::now();
        let asking = tokio::time::timeout(Duration::from_secs(1), store.try_acquire(bid)).await;
        if let Ok(Ok(Answer::Granted(token))) = asking {
            return (token, sent);
        }
        if rng.u32(0..5) == 0 {
            let withdrawing = store.withdraw(&bid.key, bid.owner.nonce);
            if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), withdrawing).await {
                let found =
                    tokio::time::timeout(Duration::from_secs(1), store.granted(&bid.key, bid.owner.nonce));
                assert!(!matches!(found.await, Ok(Ok(Some(_)))), "it was withdrawn");
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(1..150))).await;
    }
}

fn believe(belief: &Mutex<Belief>, token: Token, sent: Duration) {
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

fn renewed(belief: &Mutex<Belief>, token: Token, sent: Duration) {
    let mut belief = belief.lock().unwrap();
    assert_eq!(belief.token, Some(token), "it is another's");
    belief.until = belief.until.max(sent + LEASE);
}

/// Stops considering the lock valid before it releases it. A lock that is not released expires.
async fn let_go(store: &Ledger, bid: &Bid, token: Token, belief: &Mutex<Belief>) {
    {
        let mut belief = belief.lock().unwrap();
        if belief.token == Some(token) {
            belief.until = Duration::ZERO;
        }
    }
    let releasing = store.release(&bid.key, bid.owner.nonce, token);
    _ = tokio::time::timeout(Duration::from_secs(1), releasing).await;
}
