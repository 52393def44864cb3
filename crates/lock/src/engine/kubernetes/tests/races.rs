//! Concurrent requests.

use tokio::task::JoinSet;

use super::*;

const ROUNDS: usize = 100;
const RACERS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_one_wins_each_time() {
    for world in World::all().await {
        let engines: Vec<Arc<Kubernetes>> = (0..4).map(|_| Arc::new(world.engine())).collect();
        let mut key = fresh_key();
        let mut highest = Token::new(0);
        for round in 0..ROUNDS {
            // In some rounds the lock does not exist yet, so that its creation is raced for, too.
            if round % 10 == 0 {
                (key, highest) = (fresh_key(), Token::new(0));
            }
            let mut race = JoinSet::new();
            for racer in 0..RACERS {
                let (engine, bid) = (Arc::clone(&engines[racer % engines.len()]), bid(&key, LONG));
                race.spawn(async move { (bid.owner.nonce, engine.try_acquire(&bid).await.unwrap()) });
            }
            let answers = race.join_all().await;
            let won = answers.iter().filter_map(|(nonce, answer)| match answer {
                Answer::Granted(token) => Some((*nonce, *token)),
                Answer::Held(_) => None,
            });
            let won: Vec<(Nonce, Token)> = won.collect();
            let [(nonce, token)] = won[..] else { panic!("round {round}: {won:?}") };
            assert!(token > highest, "round {round}: {token} after {highest}");
            highest = token;
            assert!(engines[0].release(&key, nonce, token).await.unwrap());
        }
    }
}

/// Each holder releases at once: no token is granted twice, and none is below an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_busy_lock_are_all_different() {
    let (_server, world) = World::stand_in().await;
    let key = fresh_key();
    let mut busy = JoinSet::new();
    for _ in 0..8 {
        let (engine, key) = (world.engine(), key.clone());
        busy.spawn(async move {
            let mut tokens = Vec::new();
            while tokens.len() < 20 {
                let bid = bid(&key, LONG);
                if let Answer::Granted(token) = engine.try_acquire(&bid).await.unwrap() {
                    assert!(engine.release(&key, bid.owner.nonce, token).await.unwrap());
                    tokens.push(token);
                }
            }
            assert!(tokens.is_sorted());
            tokens
        });
    }
    let mut tokens: Vec<Token> = busy.join_all().await.into_iter().flatten().collect();
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), all);
}
